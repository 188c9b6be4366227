"""
Pruning of old rows in small transactions, for the archive and processed keys.

A pruning of millions of rows holds no lock for long and can be interrupted at any time.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import ClassVar, Final, Self, TypeVar

from django.db import models
from django.db.models import Value
from django.db.models.functions import Now

PRUNE_CHUNK: Final = 10_000
"""Rows that `prune()` deletes in one transaction: well under a second."""

_Model = TypeVar("_Model", bound=models.Model)


class AgedQuerySet(models.QuerySet[_Model]):
    """Queries of rows that are pruned by age."""

    aged_by: ClassVar[str]
    """The field with the time from which the age counts."""

    def older_than(self, age: timedelta) -> Self:
        """Return the rows older than `age`, by the database's clock."""
        return self.filter(**{f"{self.aged_by}__lt": Now() - Value(age)})

    def prune(self, *, chunk: int | None = None) -> Iterator[int]:
        """Delete these rows, oldest first, a chunk a transaction; yield each count."""
        self._for_write = True
        chunk = deleted = chunk or PRUNE_CHUNK
        while deleted == chunk:
            doomed = self.order_by(self.aged_by, "pk").values("pk")[:chunk]
            rows = self.model._default_manager.using(self.db).filter(pk__in=doomed)
            # No signals: with a receiver for all models, Django would read each row
            # with all its columns, which the role of the harvester may not.
            deleted = rows._raw_delete(self.db)  # noqa: SLF001
            yield deleted
