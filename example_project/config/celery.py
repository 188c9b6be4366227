"""
The Celery app of the example.

Without `CELERY_BROKER_URL` tasks run immediately in the sending process, so
the example needs no Celery broker.
"""

from __future__ import annotations

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

app = Celery("example")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
