"""
How the values of a declared topic become bytes, and values again.

An encoding makes a codec for the type of a topic's values. What a codec writes, it has
checked with the rules by which it reads. Plain JSON is the encoding of a topic that
names none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from math import isfinite
from typing import Any, Final, Protocol

from pydantic import (
    PydanticUserError,
    Secret,
    SecretBytes,
    SecretStr,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import PydanticSerializationError

from ..exceptions import ConfigurationError, ConsumingError, InvalidMessage

SECRETS: Final = (Secret, SecretBytes, SecretStr)
"""Types that pydantic writes as asterisks."""
_MASK: Final = b"*****"
"""What pydantic writes for a secret."""
_MISFIT: Final = re.compile(r"\[field_name='(\w+)', ")
"""In pydantic's error: a field whose value is of another type."""


class Codec(Protocol):
    """Encodes and decodes the values of one declared topic."""

    @property
    def content_type(self) -> str:
        """The media type of what it writes."""
        ...

    def encode(self, value: Any, *, topic: str) -> str | bytes:
        """
        Return what is stashed of a value.

        Args:
            topic: the topic's name, without variables.

        Raises:
            InvalidMessage: the value is not of the declared type; shows none of it.
        """
        ...

    def decode(self, data: bytes, *, topic: str) -> Any:
        """
        Return the value of a message.

        Raises:
            ConsumingError: it is not of the declared type; shows none of it.
        """
        ...

    def json_schema(self) -> dict[str, Any]:
        """
        Return the JSON Schema of the values.

        Raises:
            ConfigurationError: they have none.
        """
        ...


class Encoding(Protocol):
    """What a topic is declared with, if its values are not plain JSON."""

    def codec(self, kind: type[Any], *, topic: str) -> Codec:
        """
        Return the codec of a type.

        Args:
            kind: the type of the topic's values.
            topic: the topic's name as it was declared, for errors.

        Raises:
            ConfigurationError: it cannot encode values of this type.
        """
        ...


class PlainJson:
    """JSON text without a schema's id."""

    content_type = "application/json"

    def __init__(self, kind: type[Any], *, topic: str) -> None:
        self._values = TypedValues(kind, topic=topic)

    def encode(self, value: Any, *, topic: str) -> str:
        return self._values.to_json(value).decode()

    def decode(self, data: bytes, *, topic: str) -> Any:
        return self._values.from_json(data)

    def json_schema(self) -> dict[str, Any]:
        return self._values.json_schema()


class TypedValues:
    """
    Values of a type that pydantic describes.

    Raises:
        ConfigurationError: pydantic does not know the type.
    """

    def __init__(self, kind: type[Any], *, topic: str) -> None:
        self._topic = topic
        self._adapter = make_adapter(topic, "value", kind)

    def to_json(self, value: Any) -> bytes:
        """
        Return a value as JSON, if it can be read again.

        Raises:
            InvalidMessage: it is not of the type.
        """
        with self._refusing(value):
            text = self._adapter.dump_json(value, by_alias=True, warnings="error")
            self._adapter.validate_json(text)
        # Pydantic writes these for what JSON has no number for, and for secrets.
        if b"null" in text or _MASK in text:
            for scalar in scalars(self._adapter.dump_python(value)):
                self._require_written(scalar)
        return text

    def _require_written(self, scalar: Any) -> None:
        if isinstance(scalar, float) and not isfinite(scalar):
            raise InvalidMessage(
                f"value: not of {self._topic}: JSON has neither NaN nor infinity."
            )
        if isinstance(scalar, SECRETS):
            raise InvalidMessage(
                f"value: {self._topic} has a {type(scalar).__name__}, which pydantic "
                "writes as asterisks. Use str, or a field_serializer that reveals it."
            )

    def to_python(self, value: Any) -> Any:
        """
        Return a value as dicts, lists and scalars, if it can be read again.

        Raises:
            InvalidMessage: it is not of the type.
        """
        with self._refusing(value):
            plain = self._adapter.dump_python(value, by_alias=True, warnings="error")
            self._adapter.validate_python(plain)
        return plain

    def _misfit(self, error: PydanticSerializationError, value: Any) -> str:
        """Say what is wrong without a part of the payload: by the names of fields."""
        fields = _names(self._adapter).intersection(_MISFIT.findall(str(error)))
        reason = f"a {type(value).__name__} is not of {self._topic}"
        if not fields:
            return reason
        return f"{reason}: of another type: {', '.join(sorted(fields))}"

    @contextmanager
    def _refusing(self, value: Any) -> Iterator[None]:
        try:
            yield
        except PydanticSerializationError as exc:
            reason = self._misfit(exc, value)
            raise InvalidMessage(f"value: {reason}.") from None
        except ValidationError as exc:
            reason = why(exc, self._adapter)
            raise InvalidMessage(f"value: not of {self._topic}: {reason}") from None

    def from_json(self, data: bytes) -> Any:
        """
        Return the value that JSON stands for.

        Raises:
            ConsumingError: it is not of the type.
        """
        with self._failing():
            return self._adapter.validate_json(data)

    def from_python(self, plain: Any) -> Any:
        """
        Return the value that dicts, lists and scalars stand for.

        Raises:
            ConsumingError: it is not of the type.
        """
        with self._failing():
            return self._adapter.validate_python(plain)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except ValidationError as exc:
            reason = why(exc, self._adapter)
            raise ConsumingError(f"value: not of {self._topic}: {reason}") from None

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of what is read."""
        return self._adapter.json_schema()


def make_adapter(topic: str, what: str, kind: type[Any]) -> TypeAdapter[Any]:
    """
    Return pydantic's adapter of a type.

    Raises:
        ConfigurationError: pydantic does not know the type.
    """
    try:
        return TypeAdapter(kind)
    except PydanticUserError as exc:
        raise ConfigurationError(
            f"{topic}: pydantic cannot describe the {what} {kind!r}: {exc.message}"
        ) from exc


def why(error: ValidationError, adapter: TypeAdapter[Any]) -> str:
    """Say what is wrong without a part of the payload, such as a key of a dict."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    names, reasons = _names(adapter), []
    for one in found[:5]:
        place = [str(part) if part in names else "…" for part in one["loc"]]
        has_tag = one["type"] == "union_tag_invalid"
        text = "No type of the union has this tag" if has_tag else one["msg"]
        reasons.append(f"{'.'.join(place) or 'it'}: {text}")
    return "; ".join(reasons)


def _names(adapter: TypeAdapter[Any]) -> set[str]:
    """Return the names of all fields, as far as pydantic can tell."""
    names: set[str] = set()
    for by_alias in (True, False):
        with suppress(PydanticUserError):
            names.update(_fields(adapter.json_schema(by_alias=by_alias)))
    return names


def _fields(schema: object) -> Iterator[str]:
    """Yield the names of all fields that a JSON Schema has."""
    parts: Iterable[object] = schema if isinstance(schema, list) else ()
    if isinstance(schema, dict):
        yield from schema.get("properties", ())
        parts = schema.values()
    for part in parts:
        yield from _fields(part)


def scalars(plain: Any) -> Iterator[Any]:
    """Yield all that is in dicts and lists, keys included."""
    if isinstance(plain, dict):
        for part in (*plain, *plain.values()):
            yield from scalars(part)
    elif isinstance(plain, list | tuple | set | frozenset):
        for part in plain:
            yield from scalars(part)
    else:
        yield plain
