"""
The decoder for the values of one topic, created from its declared schema.

The driver creates one to get the columns and to check that everything is
installed. Each worker process creates its own, once, to decode.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Protocol

from ...exceptions import ConfigurationError
from .declared import Encoded
from .registry import Writers
from .required_packages import require_packages

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

NEEDED: Final = {
    "avro": ("fastavro", "pyarrow", "pandas"),
    "protobuf": ("google.protobuf", "pyarrow", "pandas"),
}
"""Packages of the extra `registry` for each format; Spark needs the last two."""


class Decoder(Protocol):
    """Decodes the values of one topic."""

    @property
    def columns(self) -> StructType:
        """The columns of a decoded value; each may be null."""
        ...

    def decode(self, value: bytes) -> dict[str, Any]:
        """
        Return values that Arrow accepts for `columns`; not thread-safe.

        Raises:
            Exception: of any class; the value is invalid.
        """
        ...


@lru_cache(maxsize=64)
def make_decoder(encoded: Encoded, writers: Writers = ()) -> Decoder:
    """
    Create a decoder; the same arguments return the same object.

    Args:
        writers: The writers' schemas of the values, if there is a registry.

    Raises:
        ConfigurationError: the schema is invalid, or the extra is not installed.
    """
    require_packages(*NEEDED[encoded.format], extra="registry")
    if encoded.format == "avro":
        from .avro import AvroDecoder

        return AvroDecoder(encoded, writers)
    from .protobuf import ProtobufDecoder

    return ProtobufDecoder(encoded, writers)


def check(schemas: Mapping[str, str | Encoded]) -> dict[str, StructType]:
    """
    Return the columns of each topic with Avro or Protobuf values.

    Raises:
        ConfigurationError: names the first topic whose schema cannot be used.
    """
    columns = {}
    for topic, schema in schemas.items():
        if isinstance(schema, Encoded):
            try:
                columns[topic] = make_decoder(schema).columns
            except ConfigurationError as error:
                raise ConfigurationError(f"schemas: {topic}: {error}") from error
    return columns
