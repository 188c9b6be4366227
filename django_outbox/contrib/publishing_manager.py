"""
The manager of models that publish: bulk operations never change rows silently.

Django sends no signals for them. `bulk_create()` stashes the messages itself. An
update does not know its rows, so it is refused where a message would be missing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NoReturn, TypeVar

from django.db import models, transaction

from ..exceptions import StashError
from ..stashing.writing import stash_many
from .publications import CREATE, DELETE, UPDATE, wanted
from .stored_rows import as_stored

_Row = TypeVar("_Row", bound=models.Model)


class UnpublishedChange(StashError):
    """A bulk operation would change rows without their messages."""


class PublishingQuerySet(models.QuerySet[_Row]):
    """Queries whose bulk operations publish, or raise `UnpublishedChange`."""

    def bulk_create(
        self,
        objs: Iterable[_Row],
        batch_size: int | None = None,
        ignore_conflicts: bool = False,  # noqa: FBT002  # Django's own signature
        update_conflicts: bool = False,  # noqa: FBT002  # ... and here
        update_fields: Collection[str] | None = None,
        unique_fields: Collection[str] | None = None,
    ) -> list[_Row]:
        """
        Insert rows and stash their messages, in one transaction.

        Raises:
            UnpublishedChange: conflicts may not be ignored or updated, since the
                database does not say which rows those are.
        """
        publications = wanted(self.model, CREATE)
        if ignore_conflicts and publications:
            self._refuse("bulk_create(ignore_conflicts=True)")
        if update_conflicts and wanted(self.model, CREATE, UPDATE):
            self._refuse("bulk_create(update_conflicts=True)")
        objs = list(objs)
        if publications and any(hasattr(o.pk, "resolve_expression") for o in objs):
            # Django does not read them back.
            self._refuse("bulk_create() of rows with keys that the database makes")
        # Chooses the database as the INSERT does.
        self._for_write = True
        alias = self.db
        with transaction.atomic(using=alias, savepoint=False):
            rows = super().bulk_create(
                objs,
                batch_size=batch_size,
                ignore_conflicts=ignore_conflicts,
                update_conflicts=update_conflicts,
                update_fields=update_fields,
                unique_fields=unique_fields,
            )
            if rows and publications:
                stored = [as_stored(row, using=alias) for row in rows]
                stash_many(
                    (
                        one.message(row, CREATE)
                        for row in stored
                        for one in publications
                    ),
                    using=alias,
                )
        return rows

    def update(self, **values: Any) -> int:
        """
        Change rows, unless their messages would be missing.

        Raises:
            UnpublishedChange: it would have changed a row, and was rolled back.
        """
        if not wanted(self.model, UPDATE):
            return super().update(**values)
        self._for_write = True
        # Deletions call it for rows that may not exist, so that only the count tells.
        with transaction.atomic(using=self.db):
            changed = super().update(**values)
            if changed:
                self._refuse("update()")
        return changed

    def bulk_update(
        self, objs: Iterable[_Row], fields: Iterable[str], batch_size: int | None = None
    ) -> int:
        """Change rows, unless their messages would be missing."""
        if wanted(self.model, UPDATE):
            self._refuse("bulk_update()")
        return super().bulk_update(objs, fields, batch_size=batch_size)

    def _raw_delete(self, using: str | None) -> int:
        if wanted(self.model, DELETE):
            self._refuse("_raw_delete()")
        return super()._raw_delete(using)

    def _refuse(self, call: str) -> NoReturn:
        name = self.model.__name__
        raise UnpublishedChange(
            f"{call} would change rows of {name} without their messages. Call save() "
            "or delete() for each row in a transaction, or bulk_create() without "
            f"conflicts. To send no messages: `with unpublished({name}):`. "
            "on_delete=SET_NULL and add() of a related manager call update(), too."
        )


class PublishingManager(models.Manager[_Row]):
    """The manager that a model with Django's plain one gets when it is declared."""

    _queryset_class = PublishingQuerySet
