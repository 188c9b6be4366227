"""
Encodings whose schemas are in a registry: JSON with JSON Schema, Avro, Protobuf.

    registry = SchemaRegistry(settings.SCHEMA_REGISTRY)
    orders = Topic(
        "orders", key=int, value=OrderPlaced, encoding=RegisteredJson(registry)
    )

Values are written as Confluent's serializers write them. A schema is registered by
`register_schemas()`, at deployment, and never by a request.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from confluent_kafka.schema_registry import Schema, topic_subject_name_strategy
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import (
    ProtobufDeserializer,
    ProtobufSerializer,
)
from confluent_kafka.serialization import SerializationContext
from django.core.checks import register

from ..exceptions import ConfigurationError, ConsumingError, InvalidMessage
from .contracts import Topic, declared_topics
from .registered_avro import RegisteredAvro
from .registered_codec import (
    BY_TOPIC,
    Format,
    RegisteredCodec,
    schema_of_proto,
    writing,
)
from .schema_checks import check_schemas
from .schema_registry import SchemaRegistry
from .topic_names import TopicName
from .value_codecs import TypedValues

__all__ = [
    "RegisteredAvro",
    "RegisteredJson",
    "RegisteredProtobuf",
    "SchemaRegistry",
    "register_schema",
    "register_schemas",
]


@dataclass(frozen=True, slots=True)
class RegisteredJson:
    """
    JSON, whose schema pydantic makes from the type of the values.

    Reading needs no registry: JSON has the names of its fields.

    Args:
        registry: where the schemas are.
    """

    registry: SchemaRegistry

    def codec(self, kind: type[Any], *, topic: str) -> RegisteredCodec:
        """Return the codec of a type that pydantic describes."""
        values = TypedValues(kind, topic=topic)
        text = json.dumps(values.json_schema())
        # Pydantic reads and writes the text: it has checked what a validator would.
        deserialize = JSONDeserializer(
            text, conf={**BY_TOPIC, "validate": False}, json_decode=bytes
        )
        made = Format(
            name="JSON",
            content_type="application/json",
            to_plain=values.to_json,
            from_plain=values.from_json,
            make_serializer=lambda: JSONSerializer(
                text,
                self.registry.client,
                conf={**writing(self.registry), "validate": False},
                json_encode=bytes,
            ),
            deserialize=deserialize,
            make_schema=lambda _: Schema(text, "JSON"),
            make_json_schema=values.json_schema,
        )
        return RegisteredCodec(made, registry=self.registry, topic=topic)


@dataclass(frozen=True, slots=True)
class RegisteredProtobuf:
    """
    Protobuf: the type of the values is a generated message class.

    Args:
        registry: where the schemas are. A file that the message's file imports has the
            subject of its path.
    """

    registry: SchemaRegistry

    def codec(self, kind: type[Any], *, topic: str) -> RegisteredCodec:
        """
        Return the codec of a message class.

        Raises:
            ConfigurationError: the type is none.
        """
        descriptor: Any = getattr(kind, "DESCRIPTOR", None)
        if descriptor is None:
            raise ConfigurationError(
                f"{topic}: {kind!r} is not a message class that protoc generated."
            )
        message: Any = kind

        def checked(value: Any) -> Any:
            if not isinstance(value, kind):
                given = type(value).__name__
                raise InvalidMessage(f"value: a {given} is not of {topic}.")
            if not value.IsInitialized():
                raise InvalidMessage(f"value: not of {topic}: lacks required fields.")
            return value

        def subject(context: SerializationContext, name: str | None) -> str | None:
            # The deserializer asks a second time, with the name of the message, if
            # there is no subject without one.
            if name is None:
                return None
            if name != descriptor.full_name:
                raise ConsumingError(
                    f"value: a {name} is not of {topic}, whose values are "
                    f"{descriptor.full_name}."
                )
            return topic_subject_name_strategy(context, name)

        def no_json_schema() -> dict[str, Any]:
            raise ConfigurationError(
                f"{topic}: Protobuf has no JSON Schema; readers need its .proto file."
            )

        client = self.registry.client
        made = Format(
            name="Protobuf",
            content_type="application/protobuf",
            to_plain=checked,
            from_plain=lambda value: value,
            make_serializer=lambda: ProtobufSerializer(
                message, client, conf=writing(self.registry)
            ),
            deserialize=ProtobufDeserializer(
                message, {"subject.name.strategy": subject}, client
            ),
            make_schema=lambda resolve: schema_of_proto(descriptor.file, resolve),
            make_json_schema=no_json_schema,
        )
        return RegisteredCodec(made, registry=self.registry, topic=topic)


def register_schemas() -> dict[str, int]:
    """
    Register the schemas of all topics that were declared so far.

    Topics whose names have variables are left out: `register_schema()` is for them.

    Returns:
        The topics' names, with the ids of their schemas.

    Raises:
        ConfigurationError: the registry refuses a schema: it is not compatible with its
            former versions, or not valid.
        RegistryUnavailable: the registry does not answer.
    """
    return {
        topic.name: topic.codec.register(topic.name)
        for topic in declared_topics()
        if isinstance(topic.codec, RegisteredCodec) and not topic.variables
    }


def register_schema(topic: Topic[Any, Any], **variables: str) -> int:
    """
    Register the schema of one topic; return its id.

    Args:
        topic: as it was declared.
        variables: those of its name.

    Raises:
        InvalidMessage: a variable is missing, or is none.
        ConfigurationError: as of `register_schemas()`, or the topic's encoding has no
            registry.
        RegistryUnavailable: the registry does not answer.
    """
    if not isinstance(topic.codec, RegisteredCodec):
        raise ConfigurationError(f"{topic.name}: its encoding has no registry.")
    return topic.codec.register(TopicName(topic.name).filled(variables))


register(check_schemas, "django_outbox", deploy=True)
