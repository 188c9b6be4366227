"""
Avro: from a schema to columns, and from bytes to what these columns take.

`fastavro` decodes, resolves a writer's schema against the declared one, and
reads logical types. What it returns is nearly what Arrow takes; `_conversion`
does the rest.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from io import BytesIO
from typing import Any, Final, TypeAlias

from fastavro import parse_schema, schemaless_reader
from pyspark.sql import types as t

from ...exceptions import ConfigurationError
from .avro_types import simplify, spark_type, without_null
from .declared import Encoded
from .decoder import Writers
from .framing import PREFIX, Undecodable, schema_id
from .registry import Registered

Conversion: TypeAlias = Callable[[Any], Any]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class AvroDecoder:
    """Decodes the values of one topic."""

    def __init__(self, encoded: Encoded, writers: Writers) -> None:
        """
        Read the declared schema and those of the writers.

        Raises:
            ConfigurationError: the declared schema is none, or has no columns.
        """
        self._is_framed = encoded.is_framed
        self._has_registry = bool(writers) or encoded.registry is not None
        try:
            plain = simplify(json.loads(encoded.schema))
            self._declared = parse_schema(plain)
            whole = parse_schema(plain, expand=True)
        except Exception as error:
            raise ConfigurationError(f"it is no Avro schema: {_say(error)}.") from error
        columns = spark_type(whole)
        if not isinstance(columns, t.StructType):
            raise ConfigurationError("an Avro schema must be a record to have columns.")
        self.columns = columns
        self._convert = _conversion(whole)
        self._writers = {
            id: _writer(found, same=plain, declared=self._declared)
            for id, found in writers
        }

    def decode(self, value: bytes) -> dict[str, Any]:
        """Return the record's fields by their names."""
        buffer = BytesIO(value)
        writer = self._declared
        if self._is_framed:
            id = schema_id(value)  # noqa: A001 - its name there
            buffer.seek(PREFIX)
            if self._has_registry:
                writer = self._writer(id)
        reader = None if writer is self._declared else self._declared
        row: Any = schemaless_reader(buffer, writer, reader)
        if left := len(value) - buffer.tell():
            raise Undecodable(f"{left} of its {len(value)} bytes are left over")
        return row if self._convert is None else self._convert(row)

    def _writer(self, id: int) -> Any:  # noqa: A002 - its name there
        writer = self._writers.get(id, f"nobody has asked for schema {id}")
        if isinstance(writer, str):
            raise Undecodable(writer)
        return writer


def _writer(found: Registered | str, *, same: Any, declared: Any) -> Any:
    """What fastavro takes for a writer's schema, or why there is none."""
    if isinstance(found, str):
        return found
    if found.kind != "AVRO":
        return f"its schema is one for {found.kind}"
    try:
        plain = simplify(json.loads(found.text))
        if plain == same:
            return declared
        named: dict[str, Any] = {}
        for reference in found.references:
            parse_schema(simplify(json.loads(reference)), named_schemas=named)
        return parse_schema(plain, named_schemas=named)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is of no use
        return f"the registry's schema cannot be read: {_say(error)}"


def _conversion(schema: Any) -> Conversion | None:
    """What makes of fastavro's value Arrow's; None when it is that already."""
    schema = without_null(schema)
    if isinstance(schema, str):
        return None
    kind, logical = schema["type"], schema.get("logicalType")
    if kind in {"record", "error"}:
        return _of_record(schema["fields"])
    if kind == "array":
        return _of_array(_conversion(schema["items"]))
    if kind == "map":
        return _of_map(_conversion(schema["values"]))
    if logical == "uuid":
        return str
    if logical == "decimal":
        return lambda v: _decimal(v, schema.get("scale", 0))
    if logical == "date":
        return lambda v: v if isinstance(v, date) else date.fromordinal(v + 719_163)
    if logical is not None:
        unit = timedelta(microseconds=1_000 if logical.endswith("millis") else 1)
        epoch = _EPOCH.replace(tzinfo=None) if logical.startswith("local") else _EPOCH
        return lambda v: v if isinstance(v, datetime) else epoch + v * unit
    return None


def _of_record(fields: list[dict[str, Any]]) -> Conversion | None:
    found = [(field["name"], _conversion(field["type"])) for field in fields]
    steps = [(name, convert) for name, convert in found if convert]

    def convert_record(row: dict[str, Any]) -> dict[str, Any]:
        # A copy: it may be the schema's own default.
        converted = dict(row)
        for name, convert in steps:
            if (value := row[name]) is not None:
                converted[name] = convert(value)
        return converted

    return convert_record if steps else None


def _of_array(convert: Conversion | None) -> Conversion | None:
    if convert is None:
        return None
    return lambda values: [None if v is None else convert(v) for v in values]


def _of_map(convert: Conversion | None) -> Conversion:
    if convert is None:
        return lambda values: list(values.items())
    return lambda values: [
        (key, None if v is None else convert(v)) for key, v in values.items()
    ]


def _decimal(value: Any, scale: int) -> Decimal:
    """A writer without the logical type leaves bytes, and a default is a text."""
    if isinstance(value, Decimal):
        return value
    if isinstance(value, str):
        value = value.encode("latin-1")
    return Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-scale)


def _say(error: Exception) -> str:
    return str(error) or type(error).__name__
