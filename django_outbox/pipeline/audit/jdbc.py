"""
Reads the outbox's database with Spark: messages that were sent or are pending.

One statement reads archive, outbox and parked rows, so all come from one
snapshot. Rows move between the tables in transactions, so each is in exactly
one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from pyspark.sql import functions as F

from ...exceptions import ConfigurationError, DatabaseUnavailable
from ...settings.rules import TABLE_NAME
from ..pipeline_settings import CLUSTER
from ..resend.selection import fits

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from ..pipeline_settings import PipelineSettings

SENT, PENDING = "sent", "pending"
"""Values of `state`: archived (sent), or in the outbox or parked (pending)."""

_SELECT: Final = (
    "SELECT '{state}' AS state, message_id::text AS message_id, id,"
    " kafka_topic AS topic,"
    " md5(convert_to(kafka_key, 'UTF8')) AS key_digest,"
    " md5(coalesce(kafka_value_bytes, convert_to(kafka_value, 'UTF8')))"
    " AS value_digest,"
    " create_time AS created_at, cluster_id,"
    " {archived_at} AS archived_at FROM {table}"
)

_COUNTS: Final = """
SELECT kafka_topic AS topic, bucket,
    count(*) FILTER (WHERE is_sent) AS in_database,
    count(*) FILTER (WHERE NOT is_sent) AS pending,
    sum(('x' || substr(md5(message_id::text), 1, 8))::bit(32)::bigint)
        FILTER (WHERE is_sent)::bigint AS database_digest,
    count(*) FILTER (WHERE NOT is_sent) = 0
        AND max(archived_at) < now() - make_interval(secs => {settle})
        AS is_settled
FROM (
    SELECT *, floor(extract(epoch FROM create_time) / {width})::bigint
        * {width} AS bucket
    FROM (
        SELECT kafka_topic, create_time, message_id, archived_at, true AS is_sent
        FROM {table}_archive WHERE archived_at >= to_timestamp({since})
        UNION ALL
        SELECT kafka_topic, create_time, message_id, NULL, false FROM {table}
        WHERE {is_own}
        UNION ALL
        SELECT kafka_topic, create_time, message_id, NULL, false FROM {table}_parked
    ) AS messages
    WHERE create_time >= to_timestamp({since})
) AS messages
GROUP BY kafka_topic, bucket
"""
"""Counts for each topic and bucket. Rows are archived after their creation, so the
filter on `archived_at` loses none of them."""


def options(url: str) -> dict[str, str]:
    """Turn a database URL into options of Spark's source; its URL has no secret."""
    parts = urlsplit(url)
    server = f"{parts.hostname}:{parts.port or 5432}"
    query = f"?{parts.query}" if parts.query else ""
    return {
        "url": f"jdbc:postgresql://{server}{parts.path}{query}",
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "driver": "org.postgresql.Driver",
        # By default the driver fetches all rows at once.
        "fetchsize": "10000",
    }


def query(spark: SparkSession, url: str, text: str, **more: str) -> DataFrame:
    """Return the rows of a statement; `more` are options of Spark's source."""
    jdbc = spark.read.format("jdbc").options(**options(url))
    return jdbc.options(**more).option("query", text).load()


@contextmanager
def explained(what: str) -> Iterator[None]:
    """
    Turn the database's errors into one line.

    Raises:
        ConfigurationError: the database rejected the statement about `what`.
        DatabaseUnavailable: the database cannot be reached.
    """
    try:
        yield
    except Exception as error:
        # The class depends on where Spark runs.
        _, is_rejected, reason = str(error).partition("ERROR: ")
        if is_rejected:
            reason = reason.splitlines()[0]
            raise ConfigurationError(
                f"{what}: error from the database: {reason}"
            ) from error
        if "FAILED_JDBC.CONNECTION" in str(error):
            raise DatabaseUnavailable(
                "The database cannot be reached, or rejects this user (DATABASE_URL)."
            ) from error
        raise


def promises(spark: SparkSession, settings: PipelineSettings) -> DataFrame | None:
    """
    Return the state of each message in the databases; None without a database.

    A pending message may be in the databases of several clusters.

    Raises:
        ConfigurationError: the table's name is not a plain SQL name, or the
            database URL of a cluster is missing.
    """
    archive, *others = table_names(settings)
    text = " UNION ALL ".join(
        [
            _SELECT.format(state=SENT, table=archive, archived_at="archived_at"),
            *(
                _SELECT.format(
                    state=PENDING, table=name, archived_at="NULL::timestamptz"
                )
                for name in others
            ),
        ]
    )
    outboxes = settings.outboxes()
    if not outboxes:
        return None
    rows = _union([query(spark, url, text) for url in outboxes.values()])
    source = F.lit(settings.source)
    if part := CLUSTER.match(next(iter(settings.clusters), "")):
        source = F.concat(F.lit(f"{part[1]}/"), F.col("cluster_id"))
    return rows.withColumn("source", source).drop("cluster_id")


def counts(
    spark: SparkSession,
    settings: PipelineSettings,
    *,
    since: int,
    width: int,
    settle: int,
) -> DataFrame:
    """
    Let the databases count the messages of each topic and time bucket.

    Each cluster counts the pending messages that were written there.

    Args:
        since: Start of the first bucket, in seconds since 1970.
        width: Width of a bucket, in seconds.
        settle: Seconds after which archived messages must be in the lake.

    Returns:
        topic, bucket (seconds since 1970), in_database, pending,
        database_digest, is_settled.

    Raises:
        ConfigurationError: the table's name is not a plain SQL name, or the
            database URL of a cluster is missing.
    """
    values = {"since": since, "width": width, "settle": settle}
    table = outbox_table(settings)
    of_each = []
    for source, url in settings.outboxes().items():
        part = CLUSTER.match(source) if settings.clusters else None
        is_own = f"cluster_id = {part[2]}" if part else "true"
        text = _COUNTS.format(table=table, is_own=is_own, **values)
        of_each.append(query(spark, url, text))
    sums = ("in_database", "pending", "database_digest")
    return (
        _union(of_each)
        .groupBy("topic", "bucket")
        .agg(
            *(F.sum(name).alias(name) for name in sums),
            F.bool_and("is_settled").alias("is_settled"),
        )
    )


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    return reduce(lambda above, below: above.unionByName(below), frames)


def database_names(settings: PipelineSettings) -> tuple[str, ...]:
    """Return host, port and name of each database: what a report may show."""
    parts = [urlsplit(url) for url in settings.outboxes().values()]
    return tuple(f"{part.hostname}:{part.port or 5432}{part.path}" for part in parts)


def is_of_topics(settings: PipelineSettings) -> Column:
    """Whether the pipeline reads a row's `topic`."""
    if settings.topics:
        return F.col("topic").isin(*settings.topics)
    return fits("topic", settings.topic_pattern)


def table_names(settings: PipelineSettings) -> tuple[str, str, str]:
    """
    Return the names of archive, outbox and parked table, checked for use in SQL.

    Raises:
        ConfigurationError: the outbox's name is not a plain SQL name.
    """
    table = outbox_table(settings)
    return f"{table}_archive", table, f"{table}_parked"


def outbox_table(settings: PipelineSettings) -> str:
    """
    Return the name of the outbox table, checked for use in SQL.

    Raises:
        ConfigurationError: it is not a plain SQL name.
    """
    if not TABLE_NAME.match(settings.table):
        raise ConfigurationError(f"table: {settings.table!r} must be a plain SQL name.")
    return settings.table
