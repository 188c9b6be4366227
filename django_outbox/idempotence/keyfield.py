"""
Idempotency keys inside the entity that they change.

For entities that change often: no row in a table of all keys, and no pruning
window. Each entity remembers its own last changes, in the row that is locked
and written anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Final, Self, TypeAlias, overload

from django.core.serializers.json import DjangoJSONEncoder
from django.db import models, router, transaction
from django.db.models.functions import Now
from django.utils.timezone import get_default_timezone, is_naive, make_aware
from django.utils.translation import gettext_lazy as _

from ..exceptions import AlreadyOpen
from .claims import Keyed, Run, checked_key

Entry: TypeAlias = list[Any]
"""[key, date] or [key, date, response]; the date in ISO format, and in UTC
unless an older version wrote it."""

MAX_COUNT: Final = 100
"""Keys that an entity remembers by default."""


class IdempotencyKeysField(models.JSONField):
    """
    The keys of an entity's applied changes, oldest first, as jsonb.

    Adding a key drops old ones: those beyond the count, and those older than
    the age. A change whose key was dropped would be applied again, so choose
    both larger than any replay.

    Args:
        max_count: keys to remember at most; None = any number.
        max_age: how long to remember a key; None = without limit.
    """

    description = _("Idempotency keys")

    def __init__(
        self,
        *args: Any,
        max_count: int | None = MAX_COUNT,
        max_age: timedelta | None = None,
        **kwargs: Any,
    ) -> None:
        if max_count is None and max_age is None:
            raise ValueError(
                "IdempotencyKeysField: set max_count or max_age, or it would grow "
                "without limit."
            )
        if max_count is not None and max_count < 1:
            raise ValueError("IdempotencyKeysField: max_count must be at least 1.")
        self.max_count = max_count
        self.max_age = max_age
        kwargs.setdefault("default", list)
        kwargs.setdefault("blank", True)
        kwargs.setdefault("editable", False)
        kwargs.setdefault("encoder", DjangoJSONEncoder)
        super().__init__(*args, **kwargs)

    def deconstruct(self) -> tuple[str, str, Sequence[Any], dict[str, Any]]:
        """Return what a migration needs to recreate the field."""
        name, path, args, kwargs = super().deconstruct()
        if self.max_count != MAX_COUNT:
            kwargs["max_count"] = self.max_count
        if self.max_age is not None:
            kwargs["max_age"] = self.max_age
        return name, path, args, kwargs

    def with_entry(
        self, entries: Sequence[Entry], entry: Entry, now: datetime
    ) -> list[Entry]:
        """Return the remembered entries with this one added."""
        kept = list(entries)
        if self.max_age is not None:
            horizon = _in_utc(now) - self.max_age
            kept = [e for e in kept if _in_utc(datetime.fromisoformat(e[1])) >= horizon]
        if self.max_count is not None:
            kept = kept[max(0, len(kept) + 1 - self.max_count) :]
        return [*kept, entry]


class IdempotentModel(models.Model):
    """
    An entity that applies each change once.

    To change how many keys it remembers, override `idempotency_keys` in the
    subclass.
    """

    idempotency_keys = IdempotencyKeysField(_("idempotency keys"))

    class Meta:
        abstract = True

    @overload
    def apply_once(self, key: Keyed, *, using: str | None = None) -> Application: ...
    @overload
    def apply_once(
        self, key: Keyed, change: Callable[[Self], Any], *, using: str | None = None
    ) -> Any: ...
    def apply_once(
        self,
        key: Keyed,
        change: Callable[[Self], Any] | None = None,
        *,
        using: str | None = None,
    ) -> Any:
        """
        Change this entity once for each key, under a lock on its row.

        The row is locked and reloaded, so unsaved changes are discarded. The
        change works on this object, which is saved afterwards, with the key:

            order.apply_once(message, lambda order: order.pay())

        returns what the change returned; a repeat returns the same without
        running the change. Without a change it is a context manager like `once()`:

            with order.apply_once(message) as run:
                if run.is_first:
                    order.status = "paid"

        Args:
            key: A message, or a key that is unique among this entity's changes. Two
                consumers that change it by the same message need keys of their own.
            change: Called with this object; returns JSON or None.
            using: Alias of the database; by default the object's own.

        Raises:
            DoesNotExist: The row does not exist any more.
            InvalidKey: The key is empty, too long or not printable.
            AlreadyOpen: A change of the same row is already open in this context.
            RepeatUnnoticed: The block did not read `is_first`.
        """
        application = Application(self, key, using=using)
        if change is None:
            return application
        with application as run:
            if run.is_first:
                run.respond(change(self))
        return run.response


_open_rows: ContextVar[frozenset[tuple[str, type[models.Model], Any]]] = ContextVar(
    "django_outbox_open_rows", default=frozenset()
)


class Application:
    """The transaction of `apply_once()`."""

    def __init__(
        self, entity: IdempotentModel, key: Keyed, *, using: str | None
    ) -> None:
        self._entity = entity
        self._key = checked_key(key)
        self._alias = using or router.db_for_write(type(entity), instance=entity)
        field = entity._meta.get_field("idempotency_keys")
        assert isinstance(field, IdempotencyKeysField), field
        self._field = field

    def __enter__(self) -> Run:
        self._announce()
        try:
            return self._begin()
        except BaseException:
            self._recall()
            raise

    def _recall(self) -> None:
        # It may end in another context than it began: each call of sync_to_async()
        # has a copy.
        _open_rows.set(_open_rows.get() - {self._row})

    def _announce(self) -> None:
        """Refuse a change within another one: each saves the row as it has read it."""
        # Where the keys are: a child's row and its parent's are one.
        row = self._alias, self._field.model, self._entity.pk
        if row in (rows := _open_rows.get()):
            raise AlreadyOpen(
                f"A change of this {self._entity._meta.verbose_name} is already open "
                "here: make one change of both, or end the first one before."
            )
        self._row = row
        _open_rows.set(rows | {row})

    def _begin(self) -> Run:
        self._atomic = transaction.atomic(using=self._alias)
        self._atomic.__enter__()
        try:
            self._lock()
            entries: list[Entry] = self._entity.idempotency_keys
            found = next((e for e in entries if e[0] == self._key), None)
            self._answer: list[Any] = []
            self._run = Run(
                is_first=found is None,
                response=found[2] if found and len(found) > 2 else None,
                save=self._respond,
            )
        except BaseException as error:
            self._atomic.__exit__(type(error), error, error.__traceback__)
            raise
        return self._run

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._recall()
        try:
            if exc is None:
                self._run.require_asked("apply_once()")
                if self._run.is_first:
                    self._save()
        except BaseException as error:
            self._atomic.__exit__(type(error), error, error.__traceback__)
            raise
        self._atomic.__exit__(exc_type, exc, traceback)

    def _lock(self) -> None:
        """Lock the row and those of its parent models; reload the object."""
        locked = self._rows().select_related(None).select_for_update()
        self._entity.refresh_from_db(using=self._alias, from_queryset=locked)

    def _respond(self, response: Any) -> None:
        self._answer = [response]

    def _save(self) -> None:
        # The clocks of processes differ; the database has one.
        mine = self._rows().filter(pk=self._entity.pk)
        now: datetime = mine.values_list(Now(), flat=True).get()
        entry = [self._key, _in_utc(now).isoformat(), *self._answer]
        self._entity.idempotency_keys = self._field.with_entry(
            self._entity.idempotency_keys, entry, now
        )
        self._entity.save(using=self._alias)

    def _rows(self) -> models.QuerySet[Any]:
        return type(self._entity)._base_manager.using(self._alias)


def _in_utc(moment: datetime) -> datetime:
    """Convert to UTC; without USE_TZ, Django's dates are naive, and of TIME_ZONE."""
    if is_naive(moment):
        moment = make_aware(moment, get_default_timezone())
    return moment.astimezone(UTC)
