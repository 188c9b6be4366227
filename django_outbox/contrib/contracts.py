"""
A topic that is declared once, for those who write and those who read it.

The declaration has the topic's name and the types of key and value. What does not fit
is an error where it is stashed, in the request, and not later in the relay or in a
consumer. Types are pydantic's: models, dataclasses, typed dicts, builtin types.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, Generic, TypeVar

from pydantic import PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from ..consuming.handlers import consumer
from ..exceptions import ConfigurationError, ConsumingError, InvalidMessage
from ..message.incoming import ConsumedMessage
from ..message.limits import Headers, header_pairs
from ..message.outgoing import Message
from ..stashing import writing
from .cloud_events import event_headers
from .topic_names import TopicName

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")
HandlerT = TypeVar("HandlerT", bound=Callable[..., Any])


class Topic(Generic[KeyT, ValueT]):
    """
    The contract of one topic.

    Args:
        name: the topic. `{tenant}.orders` has a variable, which `stash()` gets by name.
        key: type of the key; what is sent is the text of it as JSON, without quotes.
        value: type of the value; what is sent is JSON.
        event_type: with it messages have the headers of CloudEvents 1.0, as its Kafka
            binding names them.
        event_source: the URI of the service that writes, for these headers.

    Raises:
        ConfigurationError: the name is none, or pydantic does not know a type.
    """

    def __init__(
        self,
        name: str,
        *,
        key: type[KeyT],
        value: type[ValueT],
        event_type: str = "",
        event_source: str = "",
    ) -> None:
        self._name = TopicName(name)
        if bool(event_type) != bool(event_source):
            raise ConfigurationError(
                f"{name}: event_type and event_source belong together."
            )
        self._key = _adapter(name, "key", key)
        self._value = _adapter(name, "value", value)
        self._event = (event_type, event_source) if event_type else None

    @property
    def name(self) -> str:
        """The topic's name, as it was declared."""
        return str(self._name)

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
        """
        own = [*header_pairs(headers or {})]
        return Message(
            self._name.filled(variables),
            key=self._text(key),
            value=None if value is None else self._json(value),
            headers=own + event_headers(*self._event) if self._event else own,
            partition=partition,
        )

    def _text(self, key: KeyT) -> str:
        """Return the text of a key, if it is of the declared type."""
        try:
            checked = self._key.validate_python(key, strict=True)
        except ValidationError as exc:
            raise InvalidMessage(f"key: not of {self.name}: {_why(exc)}") from None
        text = self._key.dump_python(checked, mode="json")
        if not isinstance(text, (str, int)):
            kind = type(text).__name__
            raise InvalidMessage(f"key: a key of {self.name} is a {kind} in JSON.")
        return str(text)

    def _json(self, value: ValueT) -> str:
        """Serialize a value, if it can be read again."""
        try:
            text = self._value.dump_json(value, by_alias=True, warnings="error")
            self._value.validate_json(text)
        except PydanticSerializationError:
            kind = type(value).__name__
            raise InvalidMessage(f"value: a {kind} is not of {self.name}.") from None
        except ValidationError as exc:
            raise InvalidMessage(f"value: not of {self.name}: {_why(exc)}") from None
        return text.decode()

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
            NotInTransaction: no transaction is open on that database.
        """
        made = self.message(
            value, key=key, headers=headers, partition=partition, **variables
        )
        return writing.stash(
            made.topic,
            key=made.key,
            value=made.value,
            headers=made.headers,
            partition=partition,
            using=using,
            ordered=ordered,
        )

    # Reading.

    def read(self, message: ConsumedMessage) -> ValueT | None:
        """
        Return the value of a message; None for a tombstone.

        Raises:
            ConsumingError: it is not of the declared type.
        """
        if message.value is None:
            return None
        try:
            value: ValueT = self._value.validate_json(message.value)
        except ValidationError as exc:
            raise ConsumingError(f"value: not of {self.name}: {_why(exc)}") from None
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
        if self._name.variables:
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
        """Return the JSON Schema of the value, for readers in other languages."""
        return self._value.json_schema()


def _adapter(topic: str, what: str, kind: type[Any]) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(kind)
    except PydanticUserError as exc:
        raise ConfigurationError(
            f"{topic}: pydantic cannot describe the {what} {kind!r}: {exc.message}"
        ) from exc


def _why(error: ValidationError) -> str:
    """Say what is wrong without a part of the payload."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(
        f"{'.'.join(map(str, one['loc'])) or 'it'}: {one['msg']}" for one in found[:5]
    )
