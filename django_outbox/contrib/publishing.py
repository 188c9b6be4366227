"""
Models that publish: each change of a row stashes a message in its transaction.

    @publishes("orders")
    class Order(models.Model): ...

The messages come from Django's signals and from the model's manager. A change that
could not commit together with its message is refused before it is made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from django.core.checks import register
from django.db import connections, models, transaction
from django.db.models import signals

from ..exceptions import ConfigurationError, InvalidMessage, NotInTransaction
from ..message.limits import Headers, split_headers
from ..stashing.writing import stash_message
from . import publications
from .publications import (
    CREATE,
    DELETE,
    EVENTS,
    UPDATE,
    Model,
    Publication,
    unpublished,
    wanted,
)
from .publishing_checks import check_publishing
from .publishing_manager import (
    PublishingManager,
    PublishingQuerySet,
    UnpublishedChange,
)
from .stored_rows import as_stored

__all__ = [
    "PublishingManager",
    "PublishingQuerySet",
    "UnpublishedChange",
    "publishes",
    "unpublished",
]

_Model = TypeVar("_Model", bound=models.Model)

_DELETED: Final = "_outbox_deleted"
"""Attribute of an object that is being deleted: its row."""


def publishes(
    topic: str | Callable[[Any], str],
    *,
    key: str | Callable[[Any], str] = "pk",
    on: Collection[str] = EVENTS,
    value: Sequence[str] | Callable[[Any], object] | None = None,
    headers: Headers | Callable[[Any], Headers] | None = None,
    event_header: str | None = "event",
) -> Callable[[type[_Model]], type[_Model]]:
    """
    Declare that each change of a model's rows stashes a message.

    Several declarations of a model add up. All functions get the row.

    Args:
        topic: The Kafka topic, or a function that returns it.
        key: The name of a field, or a function that returns the key. It should
            never change, since messages are in order for each key only.
        on: The events that are published: "create", "update", "delete".
        value: The names of fields, or a function that returns the value; by
            default all concrete fields and "pk". A deletion is a tombstone.
        headers: As in `stash()`, or a function that returns them.
        event_header: Name of the header with the event; None = no such header.

    Raises:
        ConfigurationError: The declaration is invalid.
    """

    def decorate(model: type[_Model]) -> type[_Model]:
        _declare(
            Publication(
                model=model,
                topic=topic,
                key=key,
                on=frozenset([on] if isinstance(on, str) else on),
                value=value if callable(value) or value is None else tuple(value),
                headers=headers if callable(headers) else _pairs(model, headers),
                event_header=event_header,
            )
        )
        return model

    return decorate


def _pairs(model: Model, headers: Headers | None) -> Headers:
    """Check headers and keep them: an iterator would be empty for the next row."""
    try:
        return tuple(zip(*split_headers(headers), strict=True))
    except InvalidMessage as error:
        raise ConfigurationError(f"{model._meta.label}: {error}") from error


def _declare(publication: Publication) -> None:
    publications.add(publication)
    for model in _family(publication.model):
        if not model._meta.abstract:
            _adopt(model)


def _family(model: Model) -> Iterator[Model]:
    """Yield a class and all that inherit from it."""
    yield model
    for heir in model.__subclasses__():
        yield from _family(heir)


def _receive_class(sender: Model, **_: object) -> None:
    _adopt(sender)


def _adopt(model: Model) -> None:
    """Receive the signals of a model, if a declaration counts for it."""
    for abstract in publications.abstract_declarations():
        if _is_first_table(model, below=abstract.model):
            own = replace(abstract, model=model)
            if own not in publications.declared_by(model):
                publications.add(own)
    found = publications.publications_of(model)
    events = {event for one in found for event in one.on}
    if events & {CREATE, UPDATE}:
        _install_manager(model)
        signals.pre_save.connect(_before_save, sender=model)
        signals.post_save.connect(_after_save, sender=model)
    # A receiver makes Django delete row by row, so it is not connected for nothing.
    if DELETE in events:
        signals.pre_delete.connect(_before_delete, sender=model)
        signals.post_delete.connect(_after_delete, sender=model)


def _is_first_table(model: Model, *, below: Model) -> bool:
    """Whether a model inherits from an abstract one, and not by another table."""
    heirs = [one for one in model.__mro__ if issubclass(one, below)]
    tables = {publications.table_of(one) for one in heirs if not one._meta.abstract}
    return tables == {model}


def _install_manager(model: Model) -> None:
    meta = model._meta
    managers = meta.managers
    if [type(one) for one in managers] == [models.Manager] and (
        managers[0].name == "objects"
    ):
        meta.local_managers[:] = []
        model.add_to_class("objects", PublishingManager())
    default = meta.default_manager
    # Related managers and deletions use the base manager, which may not filter. The
    # option is not part of the migrations' state.
    if (
        meta.base_manager_name is None
        and default is not None
        and default.name == "objects"
        and type(default).get_queryset is models.Manager.get_queryset
        and isinstance(default.get_queryset(), PublishingQuerySet)
    ):
        meta.base_manager_name = "objects"
        meta._expire_cache()  # type: ignore[attr-defined]  # noqa: SLF001  # holds the old one


def _before_save(sender: Model, *, using: str, **_: object) -> None:
    """Refuse a save whose message could not commit with the row."""
    if wanted(sender, CREATE, UPDATE) and not connections[using].in_atomic_block:
        name = sender.__name__
        raise NotInTransaction(
            f"{name}.save(): no transaction.atomic() block is open on the database "
            f"{using!r}, so the row and its message could not commit together. Nothing "
            f"was saved. Save it inside `with transaction.atomic(using={using!r}):`, "
            f"or without a message inside `with unpublished({name}):`."
        )


def _after_save(
    sender: Model,
    *,
    instance: models.Model,
    created: bool,
    using: str,
    raw: bool,
    update_fields: Collection[str] | None,
    **_: object,
) -> None:
    event = CREATE if created else UPDATE
    # A fixture saves the row of a parent by itself, and a child without its fields.
    is_whole = update_fields is None and not (raw and sender._meta.parents)
    found = [
        one for one in wanted(sender, event) if not raw or one.concerns_table_of(sender)
    ]
    if found:
        with transaction.mark_for_rollback_on_error(using=using):
            row = as_stored(instance, using=using, is_whole=is_whole)
            _stash(found, row, event, using=using)


def _before_delete(
    sender: Model, *, instance: models.Model, using: str, **_: object
) -> None:
    """Read the row while it is there, if the object in hand does not have all of it."""
    is_new = instance._state.adding  # noqa: SLF001  # public by Django's documentation
    if _of_deletion(sender) and (is_new or instance.get_deferred_fields()):
        rows = sender._base_manager.using(using)
        vars(instance)[_DELETED] = rows.filter(pk=instance.pk).first()


def _after_delete(
    sender: Model, *, instance: models.Model, using: str, **_: object
) -> None:
    # An error rolls back: Django deletes in a transaction.
    row = vars(instance).pop(_DELETED, instance)
    # Who has deleted the row before has published that.
    if row is not None:
        _stash(_of_deletion(sender), row, DELETE, using=using)


def _of_deletion(sender: Model) -> list[Publication]:
    # Django deletes the row of a parent with a signal of its own.
    return [one for one in wanted(sender, DELETE) if one.concerns_table_of(sender)]


def _stash(
    found: Sequence[Publication], row: models.Model, event: str, *, using: str
) -> None:
    for one in found:
        stash_message(one.message(row, event), using=using)


signals.class_prepared.connect(_receive_class)
register(check_publishing, "django_outbox")
