"""
Values in Confluent's wire format: the id of a schema in a registry, then the value.

The subject of a topic's values is `<topic>-value`. A codec looks the id of its schema
up at the first value of each topic, and keeps it.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from confluent_kafka.schema_registry import (
    RegisteredSchema,
    Schema,
    SchemaReference,
    topic_subject_name_strategy,
)
from confluent_kafka.serialization import MessageField, SerializationContext

from ..exceptions import (
    ConfigurationError,
    ConsumingError,
    InvalidMessage,
    OutboxError,
)
from ..pipeline.payloads.framing import MAGIC, PREFIX_BYTES
from ..pipeline.payloads.registry import MAX_ID
from .schema_registry import NotRegistered, SchemaRegistry

Resolve: TypeAlias = Callable[[str, Schema], RegisteredSchema]
"""Returns a subject's registered schema that equals this one."""

Serialize: TypeAlias = Callable[[Any, SerializationContext], Any]

BY_TOPIC: Final[Mapping[str, Any]] = {
    "subject.name.strategy": topic_subject_name_strategy
}
"""Configuration of serializers and deserializers."""

_BUILT_IN: Final = ("confluent/", "google/protobuf/", "google/type/")
"""Folders of .proto files that every reader has: they are not registered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """What differs between the formats, for values of one type."""

    name: str
    """As errors name it."""
    content_type: str
    """The media type of values."""
    to_plain: Callable[[Any], Any]
    """Returns what a serializer takes; raises `InvalidMessage`."""
    from_plain: Callable[[Any], Any]
    """Returns the value; raises `ConsumingError`."""
    make_serializer: Callable[[], Serialize]
    """Makes confluent-kafka's serializer, for one topic."""
    deserialize: Serialize
    """Confluent-kafka's deserializer."""
    make_schema: Callable[[Resolve], Schema]
    """Returns the schema; resolves those that it refers to."""
    make_json_schema: Callable[[], dict[str, Any]]
    """Returns the JSON Schema of the values."""


class RegisteredCodec:
    """Encodes values with the id of their schema, and decodes them."""

    def __init__(self, made: Format, *, registry: SchemaRegistry, topic: str) -> None:
        self._format = made
        self._registry = registry
        self._declared = topic
        self._serializers: dict[str, Serialize] = {}

    @property
    def registry(self) -> SchemaRegistry:
        """Where its schemas are."""
        return self._registry

    @property
    def content_type(self) -> str:
        return self._format.content_type

    def json_schema(self) -> dict[str, Any]:
        return self._format.make_json_schema()

    def encode(self, value: Any, *, topic: str) -> bytes:
        """
        Return the framed value.

        Raises:
            InvalidMessage: it does not fit the type or the schema.
            ConfigurationError: the schema is not registered.
            RegistryUnavailable: the registry does not answer.
        """
        plain = self._format.to_plain(value)
        serialize = self._serializers.get(topic)
        if serialize is None:
            # Not shared: a serializer remembers one id for all of its topics.
            serialize = self._serializers[topic] = self._format.make_serializer()
        try:
            encoded = serialize(plain, SerializationContext(topic, MessageField.VALUE))
        except NotRegistered as error:
            raise ConfigurationError(
                f"{topic}: its schema is not registered as {subject_of(topic)} in "
                f"{self._registry.url}. Call register_schemas() at deployment, before "
                "the processes that write."
            ) from error
        except OutboxError:
            raise
        except Exception:  # noqa: BLE001  # each format has errors of its own
            # None of them: their texts have parts of the value.
            kind = type(value).__name__
            raise InvalidMessage(
                f"value: a {kind} does not fit the {self._format.name} schema of "
                f"{self._declared}. Compare the fields of the type with the schema's."
            ) from None
        return bytes(encoded)

    def decode(self, data: bytes, *, topic: str) -> Any:
        """
        Return the value of a framed one.

        Raises:
            ConsumingError: it has no frame, or does not fit the type or the schema.
            RegistryUnavailable: the registry does not answer.
        """
        if not data.startswith(MAGIC) or int.from_bytes(data[1:PREFIX_BYTES]) > MAX_ID:
            # Another first byte would be asked for as an id of another kind, and for a
            # larger id the registry answers as if it were away.
            raise ConsumingError(
                f"value: of {topic}, does not begin with 0 and the id of a schema."
            )
        try:
            plain = self._format.deserialize(
                data, SerializationContext(topic, MessageField.VALUE)
            )
        except NotRegistered as error:
            raise ConsumingError(
                f"value: {self._registry.url} does not have the schema that the value "
                f"of {topic} was written with."
            ) from error
        except OutboxError:
            raise
        except Exception:  # noqa: BLE001  # as above
            raise ConsumingError(
                f"value: not {self._format.name} of {self._declared} behind the id of "
                "a schema."
            ) from None
        return self._format.from_plain(plain)

    def register(self, topic: str) -> int:
        """
        Register the schema, and those that it refers to, unless they are registered.

        Args:
            topic: the topic's name, without variables.

        Returns:
            The schema's id.

        Raises:
            ConfigurationError: the registry refuses it: it is not compatible with its
                former versions, or not valid.
            RegistryUnavailable: the registry does not answer.
        """
        client = self._registry.client

        def register(subject: str, schema: Schema) -> RegisteredSchema:
            client.register_schema(subject, schema)
            return client.lookup_schema(subject, schema)

        schema = self._format.make_schema(register)
        return int(register(subject_of(topic), schema).schema_id or 0)

    def is_registered(self, topic: str) -> bool:
        """
        Whether the registry has the schema, for this topic.

        Raises:
            RegistryUnavailable: the registry does not answer.
        """
        lookup = self._registry.client.lookup_schema
        try:
            lookup(subject_of(topic), self._format.make_schema(lookup))
        except NotRegistered:
            return False
        return True

    def is_compatible(self, topic: str) -> bool:
        """
        Whether the registry would accept the schema as the subject's next version.

        True, too, where the subject, or a schema that it refers to, is new.

        Raises:
            RegistryUnavailable: the registry does not answer.
        """
        client = self._registry.client
        try:
            schema = self._format.make_schema(client.lookup_schema)
            return bool(client.test_compatibility(subject_of(topic), schema))
        except NotRegistered:
            return True


def writing(registry: SchemaRegistry) -> dict[str, Any]:
    """Return the configuration of a serializer."""
    return {**BY_TOPIC, "auto.register.schemas": registry.auto_register}


def subject_of(topic: str) -> str:
    """Return the subject under which the schema of a topic's values is registered."""
    return f"{topic}-value"


def schema_of_proto(file: Any, resolve: Resolve) -> Schema:
    """
    Return the schema of a .proto file.

    Args:
        file: its descriptor.
        resolve: called for the schema of each file that it imports.
    """
    references = [
        SchemaReference(
            name=one.name,
            subject=one.name,
            version=resolve(one.name, schema_of_proto(one, resolve)).version,
        )
        for one in file.dependencies
        if not one.name.startswith(_BUILT_IN)
    ]
    text = base64.b64encode(file.serialized_pb).decode("ascii")
    return Schema(text, "PROTOBUF", references)
