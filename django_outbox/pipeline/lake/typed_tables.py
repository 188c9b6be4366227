"""
Typed tables: one for each topic with a schema, with the value as a column.

`typed/TOPIC` has the messages of silver whose value matches the schema, and the
tombstones. It is written with silver, so other engines need neither a parser nor a
schema to read it. A new column of the schema becomes a new field of `payload`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from ...exceptions import ConfigurationError
from .records import columns, with_payload
from .tables import RECORD_COLUMNS, SCHEMAS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from ..pipeline_settings import PipelineSettings

FOLDER: Final = "typed"
"""Below the lake, with a table for each topic."""

_REFUSED: Final = frozenset(" ,;{}()\n\t=")

_COLUMNS: Final = (
    *(column for column in RECORD_COLUMNS if column not in {"value", "headers"}),
    "payload",
)


def table_of(topic: str) -> str:
    """Return the name of a topic's table."""
    return f"{FOLDER}/{topic}"


def names(settings: PipelineSettings) -> list[str]:
    """Return the names of the typed tables that these settings write."""
    return [table_of(topic) for topic in settings.schemas if settings.typed_tables]


def check_names(settings: PipelineSettings) -> None:
    """
    Refuse columns that no table of Delta can have; JSON itself may have any.

    Raises:
        ConfigurationError: names the first one.
    """
    if not settings.typed_tables:
        return
    for topic, schema in settings.schemas.items():
        found = {*_names_in(columns(schema))} if isinstance(schema, str) else set()
        if refused := sorted(name for name in found if _REFUSED & {*name}):
            raise ConfigurationError(
                f"schemas: {topic}: a typed table cannot have the column"
                f" {refused[0]!r}, since Delta allows none of ' ,;{{}}()=', tabs and"
                " line breaks in its name. Leave the column out, or set typed_tables"
                " to false."
            )


def _names_in(kind: DataType) -> Iterator[str]:
    """Yield the names of all fields, also of those inside of others."""
    if isinstance(kind, StructType):
        for field in kind.fields:
            yield field.name
            yield from _names_in(field.dataType)
    elif isinstance(kind, ArrayType):
        yield from _names_in(kind.elementType)
    elif isinstance(kind, MapType):
        yield from _names_in(kind.keyType)
        yield from _names_in(kind.valueType)


def tables_of(
    records: DataFrame, settings: PipelineSettings
) -> Iterator[tuple[str, DataFrame]]:
    """
    Yield the name and the rows of each typed table that these records belong to.

    Raises:
        RegistryUnavailable: the registry did not answer.
    """
    topics = {row["topic"] for row in records.select("topic").distinct().collect()}
    for topic, schema in settings.schemas.items():
        if topic in topics:
            rows = with_payload(records, topic=topic, schema=schema)
            yield table_of(topic), rows.select(*_COLUMNS)


def find(spark: SparkSession, settings: PipelineSettings) -> list[str]:
    """Return the names of the typed tables that are in the lake."""
    logs = f"{settings.table_path(FOLDER)}/*/_delta_log/*.json"
    topic = F.element_at(F.split("_metadata.file_path", "/"), -3)
    try:
        rows = spark.read.text(logs).select(topic.alias("topic")).distinct().collect()
    except AnalysisException:
        # There is no such table.
        return []
    return sorted(table_of(row["topic"]) for row in rows)


def all_tables(spark: SparkSession, settings: PipelineSettings) -> list[str]:
    """Return the names of all tables of the lake, typed ones at the end."""
    return [*SCHEMAS, *find(spark, settings)]
