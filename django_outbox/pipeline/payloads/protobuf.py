"""
Decodes Protobuf values into the columns of a declared message.

The descriptors come from `protoc --descriptor_set_out --include_imports`. Fields
have numbers, so the declared message can read values of any writer's version.
The registry only says which message of the schema's file a value is.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql import types as t

from ...exceptions import ConfigurationError
from .declared import Encoded
from .descriptors import find_message, name_at
from .framing import Undecodable, message_path, schema_id
from .registry import Registered, Writers

Conversion: TypeAlias = Callable[[Any], Any]

SCALAR: Final[dict[int, t.DataType]] = {
    FieldDescriptor.TYPE_BOOL: t.BooleanType(),
    FieldDescriptor.TYPE_INT32: t.IntegerType(),
    FieldDescriptor.TYPE_SINT32: t.IntegerType(),
    FieldDescriptor.TYPE_SFIXED32: t.IntegerType(),
    FieldDescriptor.TYPE_UINT32: t.LongType(),
    FieldDescriptor.TYPE_FIXED32: t.LongType(),
    FieldDescriptor.TYPE_INT64: t.LongType(),
    FieldDescriptor.TYPE_SINT64: t.LongType(),
    FieldDescriptor.TYPE_SFIXED64: t.LongType(),
    FieldDescriptor.TYPE_UINT64: t.DecimalType(20, 0),
    FieldDescriptor.TYPE_FIXED64: t.DecimalType(20, 0),
    FieldDescriptor.TYPE_FLOAT: t.FloatType(),
    FieldDescriptor.TYPE_DOUBLE: t.DoubleType(),
    FieldDescriptor.TYPE_STRING: t.StringType(),
    FieldDescriptor.TYPE_BYTES: t.BinaryType(),
    FieldDescriptor.TYPE_ENUM: t.StringType(),
}

TIMESTAMP: Final = "google.protobuf.Timestamp"

WRAPPERS: Final = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in (
        *("Bool", "Int32", "UInt32", "Int64", "UInt64"),
        *("Float", "Double", "String", "Bytes"),
    )
)
"""Messages that wrap an optional scalar."""


class ProtobufDecoder:
    """Decodes the values of one topic."""

    def __init__(self, encoded: Encoded, writers: Writers) -> None:
        """
        Parse the descriptors.

        Raises:
            ConfigurationError: they are invalid, or the message has no columns.
        """
        self._name = encoded.message
        self._is_framed = encoded.is_framed
        self._has_registry = bool(writers) or encoded.registry is not None
        self._writers = dict(writers)
        found = find_message(encoded.schema, encoded.message)
        self.columns = columns_of(found)
        if not self.columns.fields:
            raise ConfigurationError(f"{self._name} has no fields.")
        self._parse = GetMessageClass(found).FromString
        self._convert = _reader(found)
        self._file = descriptor_pb2.FileDescriptorProto()
        found.file.CopyToProto(self._file)
        self._names: dict[tuple[int, tuple[int, ...]], str] = {}

    def decode(self, value: bytes) -> dict[str, Any]:
        """Return the message's fields by their names."""
        if self._is_framed:
            path, begin = message_path(value)
            written_as = (schema_id(value), path)
            if (name := self._names.get(written_as)) is None:
                name = self._names[written_as] = self._find_name(*written_as)
            if name != self._name:
                raise Undecodable(f"its message is {name}")
            value = value[begin:]
        message: Any = self._parse(value)
        if not message.IsInitialized():
            missing = ", ".join(message.FindInitializationErrors())
            raise Undecodable(f"required fields are missing: {missing}")
        row: dict[str, Any] = self._convert(message)
        return row

    def _find_name(self, id: int, path: tuple[int, ...]) -> str:  # noqa: A002 - its name
        """Return the full name of a message in a writer's schema."""
        if not self._has_registry:
            return name_at(self._file, path)
        found = self._writers.get(id, f"schema {id} was not fetched")
        if isinstance(found, str):
            raise Undecodable(found)
        return name_at(_file_of(found), path)


def _file_of(found: Registered) -> descriptor_pb2.FileDescriptorProto:
    if found.kind != "PROTOBUF":
        raise Undecodable(f"its schema has type {found.kind} instead of PROTOBUF")
    return descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(found.text))


def columns_of(message: Descriptor, inside: tuple[str, ...] = ()) -> t.StructType:
    """
    Return the columns of a message, without fields whose message has no columns.

    Raises:
        ConfigurationError: the message is recursive.
    """
    if message.full_name in inside:
        raise ConfigurationError(
            f"{message.full_name} is recursive; a column type cannot be."
        )
    inside = (*inside, message.full_name)
    found = [(field.name, spark_type(field, inside)) for field in message.fields]
    return t.StructType([t.StructField(name, type_) for name, type_ in found if type_])


def spark_type(field: FieldDescriptor, inside: tuple[str, ...]) -> t.DataType | None:
    """Return the column type of a field; None if its message has no columns."""
    if entry := _entry(field):
        key_type, value_type = (spark_type(of_entry, inside) for of_entry in entry)
        return t.MapType(key_type, value_type) if key_type and value_type else None
    single = _single_type(field, inside)
    return t.ArrayType(single) if single and field.is_repeated else single


def _single_type(field: FieldDescriptor, inside: tuple[str, ...]) -> t.DataType | None:
    if (message := field.message_type) is None:
        return SCALAR[field.type]
    if message.full_name == TIMESTAMP:
        return t.TimestampType()
    if message.full_name in WRAPPERS:
        return SCALAR[message.fields_by_name["value"].type]
    columns = columns_of(message, inside)
    return columns if columns.fields else None


def _entry(field: FieldDescriptor) -> tuple[FieldDescriptor, FieldDescriptor] | None:
    """Return the key and value fields of a map; None for other fields."""
    message = field.message_type
    if message is None or not message.GetOptions().map_entry:
        return None
    return message.fields_by_name["key"], message.fields_by_name["value"]


def _reader(message: Descriptor) -> Conversion:
    """Return a function from message to dict; unset optional fields become None."""
    names = columns_of(message).names
    steps = [(f.name, f.has_presence, _step(f)) for f in message.fields]
    steps = [step for step in steps if step[0] in names]

    def read(found: Any) -> dict[str, Any]:
        return {
            name: convert(getattr(found, name))
            if not has_presence or found.HasField(name)
            else None
            for name, has_presence, convert in steps
        }

    return read


def _step(field: FieldDescriptor) -> Conversion:
    if entry := _entry(field):
        convert = _single(entry[1])
        return lambda found: [(key, convert(found[key])) for key in found]
    convert = _single(field)
    if field.is_repeated:
        return lambda found: [convert(one) for one in found]
    return convert


def _single(field: FieldDescriptor) -> Conversion:
    if (enum := field.enum_type) is not None:
        names = {number: value.name for number, value in enum.values_by_number.items()}
        # A number from a newer writer's schema becomes its decimal text.
        return lambda number: names.get(number, str(number))
    if (message := field.message_type) is None:
        return lambda value: value
    if message.full_name == TIMESTAMP:
        return lambda found: found.seconds * 1_000_000 + found.nanos // 1_000
    if message.full_name in WRAPPERS:
        return lambda found: found.value
    return _reader(message)
