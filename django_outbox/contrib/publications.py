"""
What models publish: their declarations, and the messages that these make of a row.

A declaration counts for its model, for the proxies of it, and for models that
inherit from it. Nothing is published for a model inside `unpublished()`.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from django.db import models

from ..exceptions import ConfigurationError, InvalidMessage
from ..message.limits import Headers, header_pairs
from ..message.outgoing import Message

CREATE: Final = "create"
UPDATE: Final = "update"
DELETE: Final = "delete"
EVENTS: Final = (CREATE, UPDATE, DELETE)
"""What happens to a row, as its message's header says."""

Model: TypeAlias = type[models.Model]

_silent: ContextVar[frozenset[Model]] = ContextVar(
    "django_outbox_unpublished", default=frozenset()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """One declaration of a model."""

    model: Model
    """The model with the table, or an abstract one."""
    topic: str | Callable[[Any], str]
    key: str | Callable[[Any], str]
    """The name of a field, or a function of the row."""
    on: frozenset[str]
    value: tuple[str, ...] | Callable[[Any], object] | None
    """The names of fields, or a function of the row; None = all concrete fields."""
    headers: Headers | Callable[[Any], Headers] | None
    event_header: str | None
    """Name of the header with the event; None = no such header."""

    def __post_init__(self) -> None:
        if not self.on or not self.on <= {*EVENTS}:
            raise ConfigurationError(
                f"{self.label}: on={sorted(self.on)}; choose from {', '.join(EVENTS)}."
            )
        if self.model._meta.proxy:
            raise ConfigurationError(
                f"{self.label} is a proxy: rows that are saved through another class "
                "of the table would be missing. Declare the model that it stands for."
            )
        if self.model._meta.auto_created:
            raise ConfigurationError(
                f"{self.label} is made by Django for a many-to-many field and sends no "
                "signals. Write a through model of your own, and declare that."
            )
        if self.model._meta.abstract:
            return
        names = [] if callable(self.value) else [*(self.value or ())]
        if not callable(self.key):
            names.append(self.key)
            if len(self.model._meta.pk_fields) > 1 and self.key == "pk":
                raise ConfigurationError(
                    f"{self.label}: the primary key has several columns; pass a "
                    "function as key=."
                )
        known = [field.name for field in self.model._meta.concrete_fields]
        for name in names:
            if name != "pk" and name not in self._fields():
                raise ConfigurationError(
                    f"{self.label} has no column {name!r}; it has {', '.join(known)}."
                )

    @property
    def label(self) -> str:
        """The model's name."""
        return self.model._meta.label

    def concerns_table_of(self, model: Model) -> bool:
        """Whether the rows of both models are in one table."""
        return table_of(model) is table_of(self.model)

    def message(self, row: models.Model, event: str) -> Message:
        """Make the message of a row; after a deletion it is a tombstone."""
        headers = self.headers(row) if callable(self.headers) else self.headers
        if self.event_header is not None:
            headers = [*header_pairs(headers or ()), (self.event_header, event)]
        return Message(
            self.topic(row) if callable(self.topic) else self.topic,
            key=self._key(row),
            value=None if event == DELETE else self._value(row),
            headers=headers,
        )

    def _key(self, row: models.Model) -> str:
        if callable(self.key):
            return self.key(row)
        content = self._content(row, self.key)
        if content is None:
            raise InvalidMessage(
                f"key: {self.label}.{self.key} is None; choose a field that always "
                "has a value."
            )
        return str(content)

    def _value(self, row: models.Model) -> object:
        if callable(self.value):
            return self.value(row)
        names = self.value
        if names is None:
            fields = self.model._meta.concrete_fields
            names = ("pk", *(field.attname for field in fields))
        return {name: self._content(row, name) for name in names}

    def _content(self, row: models.Model, name: str) -> object:
        field = self.model._meta.pk if name == "pk" else self._fields()[name]
        content = field.value_from_object(row)
        if isinstance(field, models.FileField):
            return str(content)
        if isinstance(content, bytes | bytearray | memoryview):
            return b64encode(content).decode()
        return content

    def _fields(self) -> dict[str, models.Field[Any, Any]]:
        fields = self.model._meta.concrete_fields
        named = {field.name: field for field in fields}
        return {field.attname: field for field in fields} | named


_declared: Final[dict[Model, list[Publication]]] = {}
"""By their model, abstract models included."""


def add(publication: Publication) -> None:
    """Let a declaration count from now on."""
    _declared.setdefault(publication.model, []).append(publication)


def declared_by(model: Model) -> list[Publication]:
    """Return the declarations of this class itself."""
    return _declared.get(model, [])


def abstract_declarations() -> list[Publication]:
    """Return the declarations of abstract models."""
    return [
        publication
        for model, publications in _declared.items()
        if model._meta.abstract
        for publication in publications
    ]


def publications_of(model: Model) -> list[Publication]:
    """Return the declarations that count for a model: its own and inherited ones."""
    return [
        publication
        for ancestor in model.__mro__
        for publication in _declared.get(ancestor, ())
        if not publication.model._meta.abstract
    ]


def wanted(model: Model, *events: str) -> list[Publication]:
    """Return the declarations that one of these events concerns, unless opted out."""
    found = [one for one in publications_of(model) if not one.on.isdisjoint(events)]
    silent = _silent.get()
    if silent and issubclass(table_of(model), tuple(silent)):
        return []
    return found


def table_of(model: Model) -> Model:
    """Return the model that has the table; an abstract model itself."""
    return model._meta.concrete_model or model


@contextmanager
def unpublished(*some: Model) -> Iterator[None]:
    """
    Publish nothing for these models, and those that inherit from them, in the block.

    It counts for this thread or task and for what they await, not for threads that
    the block starts.

    Raises:
        ConfigurationError: One of the models publishes nothing anyway.
    """
    for model in some:
        if not publications_of(model) and not declared_by(model):
            raise ConfigurationError(
                f"unpublished(): {model._meta.label} publishes nothing; correct the "
                "name, or remove it."
            )
    token = _silent.set(_silent.get() | {table_of(model) for model in some})
    try:
        yield
    finally:
        _silent.reset(token)
