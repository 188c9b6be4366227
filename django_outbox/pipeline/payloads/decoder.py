"""
What decodes the values of one topic, made from its declared schema.

The driver makes one to learn the columns and whether all is there; workers
make their own, once in each process, to decode.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Protocol

from ...exceptions import ConfigurationError, install_command
from .declared import Encoded
from .registry import Writers

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

NEEDED: Final = {
    "avro": ("fastavro", "pyarrow", "pandas"),
    "protobuf": ("google.protobuf", "pyarrow", "pandas"),
}
"""What the extra `registry` brings for each format; Spark wants the last two."""


class Decoder(Protocol):
    """Turns the bytes of one topic's values into what their columns take."""

    @property
    def columns(self) -> StructType:
        """The columns of a decoded value; each may be null."""
        ...

    def decode(self, value: bytes) -> dict[str, Any]:
        """
        Return what Arrow takes for `columns`; may be called from one thread only.

        Raises:
            Exception: of any kind: the value does not fit.
        """
        ...


@lru_cache(maxsize=64)
def make_decoder(encoded: Encoded, writers: Writers = ()) -> Decoder:
    """
    Make the decoder for values of this kind; the same again for the same again.

    Args:
        writers: Those of the values that are to be decoded, if a registry
            knows them.

    Raises:
        ConfigurationError: the schema is of no use, or the extra is missing.
    """
    for package in NEEDED[encoded.format]:
        try:
            importlib.import_module(package)
        except ModuleNotFoundError as error:
            raise ConfigurationError(
                f"{package} is missing: {install_command('registry')}, here"
                " and where Spark's workers run."
            ) from error
    if encoded.format == "avro":
        from .avro import AvroDecoder

        return AvroDecoder(encoded, writers)
    from .protobuf import ProtobufDecoder

    return ProtobufDecoder(encoded, writers)


def check(schemas: Mapping[str, str | Encoded]) -> dict[str, StructType]:
    """
    Return the columns of each topic that is not in JSON.

    Raises:
        ConfigurationError: names the first topic whose values cannot be decoded.
    """
    columns = {}
    for topic, schema in schemas.items():
        if isinstance(schema, Encoded):
            try:
                columns[topic] = make_decoder(schema).columns
            except ConfigurationError as error:
                raise ConfigurationError(f"schemas: {topic}: {error}") from error
    return columns
