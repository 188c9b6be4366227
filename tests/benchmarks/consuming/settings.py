"""Django settings of the consumer that is measured."""

from __future__ import annotations

import environ

env = environ.Env()

DATABASES = {"default": env.db("DATABASE_URL")}
INSTALLED_APPS = ["django_outbox", "tests.benchmarks.consuming"]
DJANGO_OUTBOX = {"KAFKA": {"bootstrap.servers": env.str("KAFKA_BOOTSTRAP_SERVERS")}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
