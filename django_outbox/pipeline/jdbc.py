"""
The outbox's database, as Spark reads it: what was sent and what waits.

One statement reads archive, outbox and parked rows, so all come from one
snapshot: a row moves from one table to another in a transaction, and is in
exactly one of them here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from ..exceptions import ConfigurationError
from ..rules import TABLE_NAME

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from .config import PipelineSettings

SENT, PENDING = "sent", "pending"
"""The column `state`: in the archive; or in the outbox, or parked."""

_SELECT: Final = (
    "SELECT '{state}' AS state, message_id::text AS message_id, id,"
    " kafka_topic AS topic,"
    " md5(convert_to(kafka_key, 'UTF8')) AS key_digest,"
    " md5(coalesce(kafka_value_bytes, convert_to(kafka_value, 'UTF8')))"
    " AS value_digest,"
    " date_trunc('hour', create_time) AS hour FROM {table}"
)


def options(url: str) -> dict[str, str]:
    """Turn a database URL into what Spark's source wants; no secret in a URL."""
    parts = urlsplit(url)
    server = f"{parts.hostname}:{parts.port or 5432}"
    query = f"?{parts.query}" if parts.query else ""
    return {
        "url": f"jdbc:postgresql://{server}{parts.path}{query}",
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "driver": "org.postgresql.Driver",
        # Without it the driver fetches all rows at once.
        "fetchsize": "10000",
    }


def query(spark: SparkSession, settings: PipelineSettings, text: str) -> DataFrame:
    """The rows of one statement."""
    jdbc = spark.read.format("jdbc").options(**options(settings.database_url))
    return jdbc.option("query", text).load()


def promises(spark: SparkSession, settings: PipelineSettings) -> DataFrame:
    """
    Return what the database says of each message.

    Raises:
        ConfigurationError: the table's name is no plain name.
    """
    if not TABLE_NAME.match(table := settings.table):
        raise ConfigurationError(f"table: {table!r} must be a plain SQL name.")
    tables = (
        (SENT, f"{table}_archive"),
        (PENDING, table),
        (PENDING, f"{table}_parked"),
    )
    text = " UNION ALL ".join(_SELECT.format(state=s, table=t) for s, t in tables)
    return query(spark, settings, text)
