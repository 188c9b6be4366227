"""
A topic that is declared once, for those who write and those who read it.

The declaration has the topic's name and the types of key and value. What does not fit
is an error where it is stashed, in the request, and not later in the relay or in a
consumer. Types are pydantic's: models, dataclasses, typed dicts, builtin types.

Values are JSON, unless the declaration has an encoding, such as one whose schemas are
in a registry.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, Final, Generic, TypeVar
from weakref import WeakSet

from pydantic import ValidationError

from ..consuming.handlers import consumer
from ..exceptions import ConfigurationError, InvalidMessage
from ..message.incoming import ConsumedMessage
from ..message.limits import Headers, header_pairs
from ..message.outgoing import Message
from ..stashing.writing import stash_message
from .cloud_events import event_headers
from .topic_names import TopicName
from .value_codecs import SECRETS, Codec, Encoding, PlainJson, make_adapter, why

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")
HandlerT = TypeVar("HandlerT", bound=Callable[..., Any])


class Topic(Generic[KeyT, ValueT]):
    """
    The contract of one topic.

    Args:
        name: the topic. `{tenant}.orders` has a variable, which `stash()` gets by name.
        key: type of the key; what is sent is the text of it as JSON, without quotes.
        value: type of the value.
        encoding: makes bytes of values; by default they are JSON.
        event_type: with it messages have the headers of CloudEvents 1.0, as its Kafka
            binding names them.
        event_source: the URI of the service that writes, for these headers.

    Raises:
        ConfigurationError: the name is none, or pydantic or the encoding does not know
            a type.
    """

    def __init__(
        self,
        name: str,
        *,
        key: type[KeyT],
        value: type[ValueT],
        encoding: Encoding | None = None,
        event_type: str = "",
        event_source: str = "",
    ) -> None:
        self._name = TopicName(name)
        if bool(event_type) != bool(event_source):
            raise ConfigurationError(
                f"{name}: event_type and event_source belong together."
            )
        self._key = make_adapter(name, "key", key)
        self._codec: Codec = (
            PlainJson(value, topic=name)
            if encoding is None
            else encoding.codec(value, topic=name)
        )
        self._event = (event_type, event_source) if event_type else None
        _declared.add(self)

    @property
    def name(self) -> str:
        """The topic's name, as it was declared."""
        return str(self._name)

    @property
    def variables(self) -> frozenset[str]:
        """The variables of its name."""
        return self._name.variables

    @property
    def codec(self) -> Codec:
        """What makes bytes of values, and values of bytes."""
        return self._codec

    def __repr__(self) -> str:
        return f"<Topic {self.name}>"

    # Writing.

    def message(
        self,
        value: ValueT | None,
        *,
        key: KeyT,
        headers: Headers | None = None,
        partition: int | None = None,
        **variables: str,
    ) -> Message:
        """
        Make a message for `stash_many()`.

        Args:
            value: None is a tombstone: it deletes the key on a compacted topic.
            key: of the declared type.
            headers: as of `stash()`.
            partition: as of `stash()`.
            variables: those of the topic's name.

        Raises:
            InvalidMessage: key or value are not of the declared types, or a variable
                is missing, or is none.
            ConfigurationError: the value's schema is not registered.
            RegistryUnavailable: the schema registry does not answer.
        """
        name = self._name.filled(variables)
        own = [*header_pairs(headers or {})]
        if self._event:
            own += event_headers(*self._event, content_type=self._codec.content_type)
        return Message(
            name,
            key=self._text(key),
            value=None if value is None else self._codec.encode(value, topic=name),
            headers=own,
            partition=partition,
        )

    def _text(self, key: KeyT) -> str:
        """Return the text of a key, if it is of the declared type."""
        try:
            checked = self._key.validate_python(key, strict=True)
        except ValidationError as exc:
            reason = why(exc, self._key)
            raise InvalidMessage(f"key: not of {self.name}: {reason}") from None
        text = self._key.dump_python(checked, mode="json")
        if isinstance(text, bool) or not isinstance(text, (str, int)):
            kind = type(text).__name__
            raise InvalidMessage(f"key: a key of {self.name} is a {kind} in JSON.")
        # A serializer of the type may reveal it.
        if isinstance(checked, SECRETS) and checked == self._key.dump_python(checked):
            kind = type(checked).__name__
            raise InvalidMessage(
                f"key: a key of {self.name} is a {kind}, which pydantic writes as"
                " asterisks. Use str."
            )
        return str(text)

    def stash(
        self,
        value: ValueT | None,
        *,
        key: KeyT,
        headers: Headers | None = None,
        partition: int | None = None,
        using: str | None = None,
        ordered: bool = False,
        **variables: str,
    ) -> uuid.UUID:
        """
        Write a message in the open transaction, as `django_outbox.stash()` does.

        Raises:
            InvalidMessage: as of `message()`, or it breaks a limit.
            ConfigurationError: as of `message()`.
            RegistryUnavailable: as of `message()`.
            NotInTransaction: no transaction is open on that database.
        """
        made = self.message(
            value, key=key, headers=headers, partition=partition, **variables
        )
        return stash_message(made, using=using, ordered=ordered)

    # Reading.

    def read(self, message: ConsumedMessage) -> ValueT | None:
        """
        Return the value of a message; None for a tombstone.

        Raises:
            ConsumingError: it is not of the declared type.
            RegistryUnavailable: the schema registry does not answer.
        """
        if message.value is None:
            return None
        value: ValueT = self._codec.decode(message.value, topic=message.topic)
        return value

    def consumer(self, *, group: str, **options: Any) -> Callable[[HandlerT], HandlerT]:
        """
        Declare a handler that gets the value and the message.

        Args:
            group: the consumer group.
            options: as of `django_outbox.consumer()`.

        Raises:
            ConfigurationError: the topic's name has variables.
        """
        if self.variables:
            raise ConfigurationError(
                f"{self.name}: a handler is for one topic; use @consumer with its "
                "name, and read() in it."
            )

        def declare(handle: HandlerT) -> HandlerT:
            if iscoroutinefunction(handle):

                @wraps(handle)
                async def handler(message: ConsumedMessage) -> Any:
                    return await handle(self.read(message), message)

            else:

                @wraps(handle)
                def handler(message: ConsumedMessage) -> Any:
                    return handle(self.read(message), message)

            consumer(self.name, group=group, **options)(handler)
            return handle

        return declare

    def json_schema(self) -> dict[str, Any]:
        """
        Return the JSON Schema of the value, for readers in other languages.

        Raises:
            ConfigurationError: its values have none, such as those in Protobuf.
        """
        return self._codec.json_schema()


_declared: Final[WeakSet[Topic[Any, Any]]] = WeakSet()


def declared_topics() -> list[Topic[Any, Any]]:
    """Return the topics of all modules that were imported, by name."""
    return sorted(_declared, key=lambda topic: topic.name)
