"""
Decodes Avro values into the columns of a declared schema.

`fastavro` decodes, resolves a writer's schema against the declared one, and
reads logical types. Arrow accepts most of its values as they are; the others
are converted.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from io import BytesIO
from typing import Any, Final, TypeAlias

from fastavro import parse_schema, schemaless_reader
from pyspark.sql import types as t

from ...exceptions import ConfigurationError
from .avro_types import simplify, spark_type, without_null
from .declared import Encoded
from .framing import PREFIX_BYTES, Undecodable, schema_id
from .registry import Registered, Writers

Conversion: TypeAlias = Callable[[Any], Any]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_EPOCH_DAY: Final = _EPOCH.toordinal()

_EXACT: Final = Context(prec=1_000)
"""Python's default context rounds after 28 digits."""


class AvroDecoder:
    """Decodes the values of one topic."""

    def __init__(self, encoded: Encoded, writers: Writers) -> None:
        """
        Parse the declared schema and those of the writers.

        Raises:
            ConfigurationError: the declared schema is invalid or has no columns.
        """
        self._is_framed = encoded.is_framed
        self._has_registry = bool(writers) or encoded.registry is not None
        try:
            plain = simplify(json.loads(encoded.schema))
            self._declared = parse_schema(plain)
            whole = parse_schema(plain, expand=True)
        except Exception as error:
            raise ConfigurationError(f"invalid Avro schema: {_text(error)}.") from error
        columns = spark_type(whole)
        if not isinstance(columns, t.StructType):
            raise ConfigurationError("the Avro schema must be a record.")
        self.columns = columns
        self._convert = _conversion(whole)
        self._writers = {
            number: _writer(found, same=plain, declared=self._declared)
            for number, found in writers
        }

    def decode(self, value: bytes) -> dict[str, Any]:
        """Return the record's fields by their names."""
        buffer = BytesIO(value)
        writer = self._declared
        if self._is_framed:
            number = schema_id(value)
            buffer.seek(PREFIX_BYTES)
            if self._has_registry:
                writer = self._writer(number)
        reader = None if writer is self._declared else self._declared
        row: Any = schemaless_reader(buffer, writer, reader)
        if left := len(value) - buffer.tell():
            raise Undecodable(f"{left} of {len(value)} bytes remain after decoding")
        found: dict[str, Any] = row if self._convert is None else self._convert(row)
        return found

    def _writer(self, id: int) -> Any:  # noqa: A002 - its name there
        writer = self._writers.get(id, f"schema {id} was not fetched")
        if isinstance(writer, str):
            raise Undecodable(writer)
        return writer


def _writer(found: Registered | str, *, same: Any, declared: Any) -> Any:
    """Return the writer's schema for fastavro, or why there is none."""
    if isinstance(found, str):
        return found
    if found.kind != "AVRO":
        return f"its schema has type {found.kind} instead of AVRO"
    try:
        plain = simplify(json.loads(found.text))
        if plain == same:
            return declared
        named: dict[str, Any] = {}
        for reference in found.references:
            parse_schema(simplify(json.loads(reference)), named_schemas=named)
        return parse_schema(plain, named_schemas=named)
    except Exception as error:  # noqa: BLE001 - every error means an unusable schema
        return f"the registry's schema cannot be parsed: {_text(error)}"


def _conversion(schema: Any) -> Conversion | None:
    """Return a function from fastavro's value to Arrow's; None if they are the same."""
    schema = without_null(schema)
    if isinstance(schema, str):
        return _of_bytes(schema) if schema == "bytes" else None
    make = _CONVERSIONS.get(schema.get("logicalType") or schema["type"])
    return make(schema) if make else None


def _of_record(schema: Any) -> Conversion | None:
    found = [(field["name"], _conversion(field["type"])) for field in schema["fields"]]
    steps = [(name, convert) for name, convert in found if convert]

    def convert_record(row: dict[str, Any]) -> dict[str, Any]:
        # A copy: the dict may be a default inside the schema.
        converted = dict(row)
        for name, convert in steps:
            if (value := row[name]) is not None:
                converted[name] = convert(value)
        return converted

    return convert_record if steps else None


def _of_array(schema: Any) -> Conversion | None:
    if (convert := _conversion(schema["items"])) is None:
        return None
    return lambda values: [None if v is None else convert(v) for v in values]


def _of_map(schema: Any) -> Conversion:
    if (convert := _conversion(schema["values"])) is None:
        return lambda values: list(values.items())
    return lambda values: [
        (key, None if v is None else convert(v)) for key, v in values.items()
    ]


# The value may have the underlying type instead of the logical one: if the writer's
# schema lacks the logical type, and in defaults.


def _of_bytes(_: Any) -> Conversion:
    # The text of a default has a character for each byte.
    return lambda v: v.encode("latin-1") if isinstance(v, str) else v


def _of_date(_: Any) -> Conversion:
    return lambda v: v if isinstance(v, date) else date.fromordinal(v + _EPOCH_DAY)


def _of_timestamp(schema: Any) -> Conversion:
    logical: str = schema["logicalType"]
    unit = timedelta(microseconds=1_000 if logical.endswith("millis") else 1)
    epoch = _EPOCH.replace(tzinfo=None) if logical.startswith("local") else _EPOCH
    return lambda v: v if isinstance(v, datetime) else epoch + v * unit


def _of_decimal(schema: Any) -> Conversion:
    exponent = -schema.get("scale", 0)

    def convert(value: Any) -> Decimal:
        if isinstance(value, Decimal):
            return value
        digits = value.encode("latin-1") if isinstance(value, str) else value
        whole = Decimal(int.from_bytes(digits, "big", signed=True))
        return whole.scaleb(exponent, _EXACT)

    return convert


_CONVERSIONS: Final[dict[str, Callable[[Any], Conversion | None]]] = {
    "record": _of_record,
    "error": _of_record,
    "array": _of_array,
    "map": _of_map,
    "bytes": _of_bytes,
    "fixed": _of_bytes,
    "uuid": lambda _: str,
    "decimal": _of_decimal,
    "date": _of_date,
    "timestamp-millis": _of_timestamp,
    "timestamp-micros": _of_timestamp,
    "local-timestamp-millis": _of_timestamp,
    "local-timestamp-micros": _of_timestamp,
}
"""By logical type, else by type."""


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
