"""
Registers the lake in a catalog: a name for each table, and two views.

The catalog is the Spark session's: Hive's metastore, Glue, Unity. The tables stay
where they are, and every engine on the catalog reads them by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ...exceptions import ConfigurationError
from . import tables, typed_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..pipeline_settings import PipelineSettings

SPARKS_OWN: Final = "spark_catalog"
"""The catalog of a name without one."""


def register(
    spark: SparkSession, settings: PipelineSettings, schema: str
) -> Iterator[str]:
    """
    Create the schema, its tables and its views; yield each name.

    Existing names of this lake stay, and views are replaced.

    Args:
        schema: Such as `outbox`, or `main.outbox` with the name of a catalog.

    Raises:
        ConfigurationError: the schema is no name, the catalog would forget it, or a
            table has this name and is another lake's.
    """
    quoted = _quoted(schema)
    _check_is_kept(spark, schema)
    # Of a path without a table Delta would make one without columns.
    tables.create(spark, settings)
    spark.sql(f"CREATE SCHEMA IF NOT EXISTS {quoted}")
    for table in typed_tables.all_tables(spark, settings):
        known_as = re.sub(r"\W", "_", table)
        name, path = f"{quoted}.{known_as}", settings.table_path(table)
        # Without columns: they and the properties are those of the path.
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS {name} USING delta"
            f" LOCATION {tables.literal(path)}"
        )
        _check_location(spark, settings, name, table)
        yield f"{schema}.{known_as}"
    for view, text in _views(quoted).items():
        spark.sql(f"CREATE OR REPLACE VIEW {quoted}.{view} AS {text}")
        yield f"{schema}.{view}"


def _views(schema: str) -> dict[str, str]:
    """Return the SQL of each view."""
    columns = [f"`{column}`" for column in tables.RECORD_COLUMNS]
    kept = ", ".join(column for column in columns if column != "`is_deleted`")
    all_of = ", ".join(columns)
    return {  # the schema's name was checked
        "current": f"SELECT {kept} FROM {schema}.latest WHERE NOT is_deleted",  # noqa: S608
        "history": f"SELECT {all_of}, false AS is_late FROM {schema}.silver"  # noqa: S608
        f" UNION ALL SELECT {all_of}, true AS is_late FROM {schema}.late",
    }


def _quoted(schema: str) -> str:
    if not re.fullmatch(r"(\w+\.)?\w+", schema):
        raise ConfigurationError(
            f"{schema!r} is no name of a schema: use letters, digits and '_', with the"
            " catalog and '.' before it if it is not the session's own."
        )
    return ".".join(f"`{part}`" for part in schema.split("."))


def _check_is_kept(spark: SparkSession, schema: str) -> None:
    catalog = schema.rpartition(".")[0] or spark.catalog.currentCatalog()
    kind = str(spark.conf.get("spark.sql.catalogImplementation"))
    if catalog == SPARKS_OWN and kind == "in-memory":
        raise ConfigurationError(
            "This Spark's catalog is in memory and ends with the command. Set"
            ' "spark.sql.catalogImplementation" = "hive" in `spark`, or name a catalog'
            " that is configured there."
        )


def _check_location(
    spark: SparkSession, settings: PipelineSettings, name: str, table: str
) -> None:
    found = spark.sql(f"DESCRIBE DETAIL {name}").collect()[0]["location"]
    ours = tables.detail(spark, settings, table)["location"]
    if found != ours:
        raise ConfigurationError(
            f"{name.replace('`', '')} is at {found}, not at {ours}: choose another"
            " schema, or drop that table, which keeps its files."
        )
