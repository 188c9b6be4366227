"""Array columns of texts, for the headers of a message."""

from __future__ import annotations

from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.core.checks import CheckMessage
from django.db import models


class TextArrayField(ArrayField):  # type: ignore[type-arg]  # generic in the stubs only
    """
    A `text[]` column that works without `django.contrib.postgres` installed.

    Since version 6.0 Django refuses every `ArrayField` of a project that does
    not list that app (`postgres.E005`). The app registers the types of hstore,
    citext and ranges with the driver, and the lookups of full-text search.
    psycopg knows `text[]` without any of that, and the outbox needs no more,
    so that its users add `"django_outbox"` to `INSTALLED_APPS` and nothing else.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(models.TextField(), **options)

    def deconstruct(self) -> Any:
        """Leave out the type of the elements, which is always text."""
        name, path, args, options = super().deconstruct()
        del options["base_field"]
        return name, path, args, options

    def check(self, **options: Any) -> list[CheckMessage]:
        """Return Django's messages without the one about the app."""
        found = super().check(**options)
        return [message for message in found if message.id != "postgres.E005"]
