"""
Maps Avro types to Spark types.

Everything here is a pure function of schemas in their JSON form.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import types as t

from ...exceptions import ConfigurationError

PRIMITIVE: Final[Mapping[str, t.DataType]] = {
    "boolean": t.BooleanType(),
    "int": t.IntegerType(),
    "long": t.LongType(),
    "float": t.FloatType(),
    "double": t.DoubleType(),
    "bytes": t.BinaryType(),
    "string": t.StringType(),
    "fixed": t.BinaryType(),
    "enum": t.StringType(),
}

LOGICAL: Final[Mapping[tuple[str, str], t.DataType | None]] = {
    ("int", "date"): t.DateType(),
    ("long", "timestamp-millis"): t.TimestampType(),
    ("long", "timestamp-micros"): t.TimestampType(),
    ("long", "local-timestamp-millis"): t.TimestampNTZType(),
    ("long", "local-timestamp-micros"): t.TimestampNTZType(),
    ("string", "uuid"): t.StringType(),
    # The type depends on the schema's precision and scale.
    ("bytes", "decimal"): None,
    ("fixed", "decimal"): None,
}
"""Logical types with a column type of their own; others use their underlying type."""

WIDER: Final = (
    {"int": "long", "long": "long"},
    {"float": "double", "double": "double"},
)
"""Unions of number types that one column can hold."""

_MAX_PRECISION: Final = 38
"""The highest precision of a decimal column."""


def simplify(schema: Any) -> Any:
    """Replace logical types without a column type by their underlying types."""
    if isinstance(schema, list):
        return [simplify(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {
        name: simplify(schema[name])
        for name in ("type", "items", "values")
        if name in schema
    }
    if "fields" in schema:
        fields = [{**f, "type": simplify(f["type"])} for f in schema["fields"]]
        inner["fields"] = fields
    plain = {**schema, **inner}
    kind, logical = str(plain.get("type")), str(plain.get("logicalType"))
    too_long = logical == "decimal" and int(plain.get("precision", 0)) > _MAX_PRECISION
    if (kind, logical) not in LOGICAL or too_long:
        plain.pop("logicalType", None)
    return plain


def spark_type(schema: Any) -> t.DataType:
    """
    Return the column type for a schema from `parse_schema(expand=True)`.

    Raises:
        ConfigurationError: no column type can hold it.
    """
    schema = without_null(schema)
    if isinstance(schema, str):
        if schema not in PRIMITIVE:
            raise ConfigurationError(f"{schema} is recursive; a column type cannot be.")
        return PRIMITIVE[schema]
    kind = schema["type"]
    if kind in {"record", "error"}:
        fields = [(f["name"], spark_type(f["type"])) for f in schema["fields"]]
        return t.StructType([t.StructField(name, type_) for name, type_ in fields])
    if kind == "array":
        return t.ArrayType(spark_type(schema["items"]))
    if kind == "map":
        return t.MapType(t.StringType(), spark_type(schema["values"]))
    if schema.get("logicalType") == "decimal":
        return t.DecimalType(schema["precision"], schema.get("scale", 0))
    logical = LOGICAL.get((kind, str(schema.get("logicalType"))))
    return logical or spark_type(kind)


def without_null(schema: Any) -> Any:
    """
    Return the only type of a union besides null; other schemas unchanged.

    Raises:
        ConfigurationError: there is none, or there are several.
    """
    if not isinstance(schema, list):
        if schema in ("null", {"type": "null"}):
            raise ConfigurationError("the type null alone has no column type.")
        return schema
    branches = [branch for branch in schema if branch not in ("null", {"type": "null"})]
    if len(branches) == 1:
        return branches[0]
    for wider in WIDER:
        if branches and all(isinstance(b, str) and b in wider for b in branches):
            return wider[branches[0]]
    raise ConfigurationError(
        f"a union of {len(branches)} types has no column type:"
        f" {json.dumps(schema)[:100]}."
    )
