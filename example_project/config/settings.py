"""
Settings of the example, from the environment.

Services without a variable are those of a running devstack: start it with
`python -m django_outbox.devstack`. Importing this module starts nothing.
"""

from __future__ import annotations

import os
from pathlib import Path

import environ
from django.core.management.utils import get_random_secret_key

from django_outbox.devstack.published import running

from .environment import database, outbox_settings, seconds

BASE_DIR = Path(__file__).resolve().parent.parent

env = environ.Env()
env.ENVIRON = {**running(), **{name: text for name, text in os.environ.items() if text}}

DEBUG = env.bool("DJANGO_DEBUG", default=False)
# A random key only works for one web process; set one for several. It may begin with
# a dollar sign, which django-environ takes for the name of another variable.
SECRET_KEY = env.ENVIRON.get("DJANGO_SECRET_KEY") or get_random_secret_key()
ALLOWED_HOSTS = env.list(
    "DJANGO_ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"]
)

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_outbox",
    "shop",
    "billing",
]
# Its tasks start Spark, so it is only installed if there is a lake.
if env.str("OUTBOX_PIPELINE_LAKE", default=""):
    INSTALLED_APPS.append("lake")
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
ROOT_URLCONF = "config.urls"
WSGI_APPLICATION = "config.wsgi.application"
ASGI_APPLICATION = "config.asgi.application"
STATIC_URL = "static/"

DATABASES = {"default": database(env.ENVIRON)}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

DJANGO_OUTBOX = outbox_settings(env.ENVIRON)

# Without a broker, tasks run immediately in the sending process.
CELERY_BROKER_URL = env.str("CELERY_BROKER_URL", default="")
CELERY_TASK_ALWAYS_EAGER = not CELERY_BROKER_URL

USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en"

BILLING_INTERVAL = seconds(env.ENVIRON, "BILLING_INTERVAL", default=5.0)
"""Seconds between two invoice runs."""

LAKE_INTERVAL = seconds(env.ENVIRON, "LAKE_INTERVAL", default=600.0)
"""Seconds between two runs of the pipeline."""
