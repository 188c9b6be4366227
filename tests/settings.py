"""
Django settings of the tests.

The services come from the environment, as `tests/run.py` sets it. Without it
`default` and `other` point nowhere until `tests/conftest.py` has started a
devstack of the session's own; tests that need no service never do.
"""

from __future__ import annotations

from importlib.util import find_spec

import environ

env = environ.Env()

DATABASES = {
    "default": env.db("DATABASE_URL", default="postgres://127.0.0.1:1/outbox"),
    "other": env.db("DATABASE_URL", default="postgres://127.0.0.1:1/outbox")
    | {"NAME": "other"},
}
for _database in DATABASES.values():
    _database["ENGINE"] = "django.db.backends.postgresql"

KAFKA_BOOTSTRAP_SERVERS = env.str("KAFKA_BOOTSTRAP_SERVERS", default="127.0.0.1:1")

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.admin",
    "django_outbox",
]
if find_spec("tests.testapp"):
    INSTALLED_APPS.append("tests.testapp")

DJANGO_OUTBOX = {"KAFKA": {"bootstrap.servers": KAFKA_BOOTSTRAP_SERVERS}}

MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
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
# The app of the tests has a relation that it warns of.
SILENCED_SYSTEM_CHECKS = ["django_outbox.W016"]
ROOT_URLCONF = "tests.urls"
STATIC_URL = "static/"
SECRET_KEY = "the tests' own"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
