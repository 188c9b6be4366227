"""The encoding of Avro values whose schema is in a registry."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from confluent_kafka.schema_registry import Schema
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import SerializationContext
from django.utils.timezone import is_naive
from fastavro import parse_schema
from fastavro.validation import ValidationError, validate

from ..exceptions import ConfigurationError, InvalidMessage
from .registered_codec import BY_TOPIC, Format, RegisteredCodec, Serialize, writing
from .schema_registry import SchemaRegistry
from .value_codecs import TypedValues, scalars


@dataclass(frozen=True, slots=True)
class RegisteredAvro:
    """
    Avro, by a schema that is given.

    A value must have exactly the schema's fields; those with a default may be missing.
    Readers get the fields of their own schema, whatever the writer's was.

    Args:
        registry: where the schemas are.
        schema: the text of an Avro schema, the path of its file, or the schema as a
            dict. It must not refer to other subjects.
    """

    registry: SchemaRegistry
    schema: str | Path | Mapping[str, Any]

    def codec(self, kind: type[Any], *, topic: str) -> RegisteredCodec:
        """
        Return the codec of a type that pydantic describes.

        Raises:
            ConfigurationError: the schema cannot be read, or is no Avro.
        """
        values = TypedValues(kind, topic=topic)
        conf = {**writing(self.registry), "validate.strict.allow.default": True}
        client = self.registry.client
        try:
            text = _text(self.schema)
            check = _field_check(text, topic=topic)
            AvroSerializer(client, text, conf=conf)
            deserialize = AvroDeserializer(client, text, conf={**BY_TOPIC})
        except Exception as error:
            raise ConfigurationError(
                f"{topic}: invalid Avro schema: {str(error) or type(error).__name__}."
            ) from error

        def make_serializer() -> Serialize:
            serializer = AvroSerializer(client, text, conf=conf)

            def serialize(plain: Any, context: SerializationContext) -> Any:
                check(plain)
                return serializer(plain, context)

            return serialize

        made = Format(
            name="Avro",
            content_type="application/avro",
            to_plain=values.to_python,
            from_plain=values.from_python,
            make_serializer=make_serializer,
            deserialize=deserialize,
            make_schema=lambda _: Schema(text, "AVRO"),
            make_json_schema=values.json_schema,
        )
        return RegisteredCodec(made, registry=self.registry, topic=topic)


def _text(schema: str | Path | Mapping[str, Any]) -> str:
    """Return the text of a schema, the same for all ways to lay it out."""
    if isinstance(schema, Path):
        schema = schema.read_text("utf-8")
    parsed = json.loads(schema) if isinstance(schema, str) else schema
    return json.dumps({"type": parsed} if isinstance(parsed, str) else parsed)


def _is_naive(scalar: object) -> bool:
    return isinstance(scalar, datetime) and is_naive(scalar)


def _field_check(text: str, *, topic: str) -> Callable[[Any], None]:
    """
    Return a function that raises for a value that does not fit.

    The serializer would write what it can, such as 2**40 as an `int`, which readers in
    other languages refuse; and its errors show the value.
    """
    schema = parse_schema(json.loads(text))
    has_moments = '"timestamp-' in text and '"local-timestamp-' not in text

    def check(plain: Any) -> None:
        if has_moments and any(map(_is_naive, scalars(plain))):
            raise InvalidMessage(
                f"value: not of {topic}: a datetime has no time zone, so that its "
                "moment would depend on the zone of this machine."
            )
        try:
            validate(plain, schema)
        except ValidationError as error:
            # Of its parts only the fields' names, which are the schema's.
            fields = sorted({one.field or "it" for one in error.errors})
            raise InvalidMessage(
                f"value: not of {topic}: {', '.join(fields)} does not fit the Avro "
                "schema."
            ) from None

    return check
