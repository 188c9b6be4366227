"""
Reads the outbox's database with Spark: messages that were sent or are pending.

One statement reads archive, outbox and parked rows, so all come from one
snapshot. Rows move between the tables in transactions, so each is in exactly
one of them.

A large archive is read in slices of time, over several connections. The last
slice has the rows of the last hour, outbox and parked rows in one snapshot, so
that no row moves between two slices.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from ...exceptions import ConfigurationError, DatabaseUnavailable
from ...settings.rules import TABLE_NAME
from ..lake.records import fits
from ..pipeline_settings import CLUSTER
from .database_url import named, options

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from ..pipeline_settings import PipelineSettings

SENT, PENDING = "sent", "pending"
"""Values of `state`: archived (sent), or in the outbox or parked (pending)."""

_CREATED: Final = (
    "CASE WHEN create_time < '0001-01-01 00:00+00' THEN to_timestamp(0)"
    " WHEN create_time < to_timestamp(0) THEN NULL"
    " WHEN create_time < '10000-01-01 00:00+00' THEN create_time"
    " ELSE to_timestamp(0) END"
)
"""
The creation time that a record has in the lake: the relay says 1970 for one that is
infinite or has no four-digit year, and the lake knows none before 1970.
"""

_SELECT: Final = (
    "SELECT '{state}' AS state, message_id::text AS message_id, id,"
    " kafka_topic AS topic,"
    " md5(convert_to(kafka_key, 'UTF8')) AS key_digest,"
    " md5(coalesce(kafka_value_bytes, convert_to(kafka_value, 'UTF8')))"
    " AS value_digest,"
    " {created} AS created_at, cluster_id,"
    " {archived_at} AS archived_at FROM {table} WHERE {condition}"
    " AND coalesce({created}, {archived_at}, now()) >= {since}"
)
"""A message without a creation time counts from its way to Kafka."""

_NO_CONNECTION: Final = re.compile(
    r"FAILED_JDBC\.CONNECTION|PSQLException: (?:FATAL|Connection|The connection"
    r"|This connection|An I/O error)"
)
"""Errors of a database that cannot be reached, or that ended the connection."""

PARALLEL_BYTES: Final = 256 * 2**20
"""Size of an archive, about a million rows, above which it is read in slices."""

LAST_SLICE: Final = 3600
"""
Shortest last slice, in seconds.

No transaction that moves rows into the archive takes so long.
"""

MAX_DATABASE_SKEW: Final = timedelta(hours=1)
"""By how much the clocks of two databases, or of a database and Kafka, may differ."""

_BOUNDS: Final = """
SELECT coalesce(
        (SELECT sum(pg_relation_size(relid)) FROM pg_partition_tree('{archive}')),
        pg_relation_size('{archive}')
    )::bigint AS bytes,
    extract(epoch FROM min(archived_at))::bigint AS first,
    extract(epoch FROM max(archived_at))::bigint AS last
FROM {archive} WHERE {condition}
"""

_COUNTS: Final = """
SELECT kafka_topic AS topic, bucket,
    count(*) FILTER (WHERE is_sent) AS in_database,
    count(*) FILTER (WHERE NOT is_sent) AS pending,
    sum(('x' || substr(md5(message_id::text), 1, 8))::bit(32)::bigint)
        FILTER (WHERE is_sent)::bigint AS database_digest,
    count(*) FILTER (WHERE NOT is_sent) = 0
        AND max(archived_at) < now() - make_interval(secs => {settle})
        AS is_settled,
    (SELECT extract(epoch FROM min(archived_at))::bigint FROM {table}_archive)
        AS archive_began
FROM (
    SELECT *, floor(extract(epoch FROM created_at) / {width})::bigint
        * {width} AS bucket
    FROM (
        SELECT kafka_topic, {created} AS created_at, message_id, archived_at,
            true AS is_sent
        FROM {table}_archive WHERE archived_at >= to_timestamp({since})
        UNION ALL
        SELECT kafka_topic, {created}, message_id, NULL, false FROM {table}
        WHERE {is_own}
        UNION ALL
        SELECT kafka_topic, {created}, message_id, NULL, false FROM {table}_parked
    ) AS messages
    WHERE created_at >= to_timestamp({since})
) AS messages
GROUP BY kafka_topic, bucket
"""
"""Counts for each topic and bucket. Rows are archived after their creation, so the
filter on `archived_at` loses none of them."""


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
            reason = reason.partition("\n")[0]
            raise ConfigurationError(
                f"{what}: error from the database: {reason}"
            ) from error
        if _NO_CONNECTION.search(str(error)):
            raise DatabaseUnavailable(
                "The database cannot be reached, or rejects this user (DATABASE_URL)."
            ) from error
        raise


def explained_outbox(settings: PipelineSettings) -> AbstractContextManager[None]:
    """Turn errors of the outbox's tables into one line, as `explained()` does."""
    return explained(f"table: {settings.table!r}, its archive or its parked rows")


def promises(
    spark: SparkSession, settings: PipelineSettings, *, since: datetime | None = None
) -> DataFrame | None:
    """
    Return the state of each message in the databases; None without a database.

    A pending message may be in the databases of several clusters.

    Args:
        since: Only messages created at or after this time; None for all.

    Raises:
        ConfigurationError: the table's name is not a plain SQL name, or the
            database URL of a cluster is missing.
    """
    archive, *others = table_names(settings)
    is_archived_since = "true"
    values = {"created": _CREATED, "since": "'-infinity'"}
    if since is not None:
        values["since"] = _time(since)
        # Rows are archived after their creation: this skips whole days.
        is_archived_since = f"archived_at >= {_time(since - MAX_DATABASE_SKEW)}"
    text = " UNION ALL ".join(
        [
            _SELECT.format(
                state=SENT,
                table=archive,
                archived_at="archived_at",
                condition=is_archived_since,
                **values,
            ),
            *(
                _SELECT.format(
                    state=PENDING,
                    table=name,
                    archived_at="NULL::timestamptz",
                    condition="true",
                    **values,
                )
                for name in others
            ),
        ]
    )
    bounds = _BOUNDS.format(archive=archive, condition=is_archived_since)
    outboxes = settings.outboxes()
    if not outboxes:
        return None
    rows = _union([_read_slices(spark, url, text, bounds) for url in outboxes.values()])
    source = F.lit(settings.source)
    if former := former_source(settings):
        source = F.concat(F.lit(f"{former}/"), F.col("cluster_id"))
    return rows.withColumn("source", source).drop("cluster_id")


def _time(time: datetime) -> str:
    return f"to_timestamp({time.timestamp():.6f})"


def _read_slices(spark: SparkSession, url: str, text: str, bounds: str) -> DataFrame:
    """Read a statement of `promises`, over several connections if it is large."""
    (found,) = query(spark, url, bounds).collect()
    if found["bytes"] < PARALLEL_BYTES or found["first"] is None:
        return query(spark, url, text)
    slices = slice_conditions(
        found["first"], found["last"] - LAST_SLICE, _parallelism(spark)
    )
    properties = options(url)
    return spark.read.jdbc(
        properties.pop("url"),
        f"({text}) AS messages",
        predicates=slices,
        properties=properties,
    )


def slice_conditions(first: int, last: int, number: int) -> list[str]:
    """
    Return a condition for each slice of the archive; together they have each row once.

    Args:
        first: When the oldest row was archived, in seconds since 1970.
        last: Where the last slice begins. It is open, and has the rows that are not
            in the archive.
        number: Number of slices.
    """
    inner = max(number - 1, 1)
    bounds = sorted({first + (last - first) * n // inner for n in range(1, inner + 1)})
    bounds = [bound for bound in bounds if bound > first]
    if not bounds:
        return ["true"]
    times = [f"to_timestamp({bound})" for bound in bounds]
    return [
        f"archived_at < {times[0]}",
        *(
            f"archived_at >= {start} AND archived_at < {end}"
            for start, end in pairwise(times)
        ),
        f"(state = '{PENDING}' OR archived_at >= {times[-1]})",
    ]


def _parallelism(spark: SparkSession) -> int:
    """Return the number of tasks that Spark runs at once, by its own default."""
    partitions = spark.range(10_000).select(F.spark_partition_id().alias("number"))
    return partitions.distinct().count()


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
        database_digest, is_settled, archive_began (when the first row of the
        youngest archive was archived, in seconds since 1970).

    Raises:
        ConfigurationError: the table's name is not a plain SQL name, or the
            database URL of a cluster is missing.
    """
    values = {"since": since, "width": width, "settle": settle, "created": _CREATED}
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
            F.max("archive_began").alias("archive_began"),
        )
    )


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    return reduce(lambda above, below: above.unionByName(below), frames)


def former_source(settings: PipelineSettings) -> str:
    """Return the source from before there were several clusters; "": there is one."""
    part = CLUSTER.match(next(iter(settings.clusters), ""))
    return part[1] if part else ""


def database_names(settings: PipelineSettings) -> tuple[str, ...]:
    """Return host, port and name of each database: what a report may show."""
    return tuple(named(url) for url in settings.outboxes().values())


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
