"""
Settings of a project that has the outboxes of three packages, and only those.

What is not here has the packages' defaults.
"""

from __future__ import annotations

import os
from urllib.parse import urlsplit

_server = urlsplit(os.environ["DATABASE_URL"])
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": _server.hostname,
        "PORT": _server.port or 5432,
        "USER": _server.username,
        "PASSWORD": _server.password,
        "NAME": _server.path.strip("/"),
        # One relay connects again for each batch otherwise.
        "CONN_MAX_AGE": None,
    }
}
INSTALLED_APPS = ["django_celery_outbox", "django_outbox_pattern", "jaiminho"]
SECRET_KEY = "the benchmark's own"
USE_TZ = True

DJANGO_OUTBOX_PATTERN = {
    "DEFAULT_CONNECTION_CLASS": "project.publishing.KafkaConnection"
}

# In its other mode the relay sends only what could not be sent on commit.
JAIMINHO_CONFIG = {"PUBLISH_STRATEGY": "keep-order", "DELETE_AFTER_SEND": True}

CELERY_OUTBOX_APP = "project.publishing.app"
# Nobody listens.
MONITORING_METRICS_ENABLED = False
