"""
Checks whether a pipeline can run here, with a remedy for each failed check.

The last check is a round trip: it sends one row to a topic of its own, copies
it from there to a table, and reads it back.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from ..exceptions import ConfigurationError, TopicMissing, install_command
from ..jars.find_java import find_java
from ..wording import count, first_line
from .audit import jdbc
from .kafka_admin import KafkaAdmin, configured_topics
from .kafka_errors import is_of_missing_topic
from .lake.ingest import read_topics
from .lake.records import check_columns
from .lake.typed_tables import check_names
from .payloads.declared import Encoded
from .payloads.decoder import check
from .session import open_session, run_mode, spark_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .pipeline_settings import PipelineSettings

TOPIC: Final = "outbox-doctor"
"""Topic of the round trip; must be created where the broker does not do it."""

_VALUES: Final = "topic STRING, value BINARY"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The outcome of one check."""

    name: str
    is_good: bool
    detail: str
    remedy: str = ""
    """What to do if the check failed."""


def examine(settings: PipelineSettings, *, topic: str = TOPIC) -> Iterator[CheckResult]:
    """Run the checks and yield each result; stop when Spark does not start."""
    if run_mode() == "local":
        yield _try("java", find_java, remedy="Install Java 17 or newer.")
        yield _try(
            "jars",
            lambda: f"{len(spark_jars())} archives, each with its pinned sha256",
            remedy="Allow access to the central Maven repository, or copy the cache"
            " from another machine.",
        )
    session = _try(
        "spark",
        lambda: f"{open_session(settings).version}, {run_mode()}",
        remedy=f"See the error; `{install_command('spark')}` installs PySpark.",
    )
    yield session
    if not session.is_good:
        return
    spark = open_session(settings)
    yield _try(
        "python",
        lambda: _same_python(spark),
        remedy="Set PYSPARK_PYTHON to the same Python on driver and workers.",
    )
    if settings.schemas:
        yield from _payloads(spark, settings)
    yield _try(
        "topics",
        lambda: _count_topics(spark, settings),
        remedy="Set `kafka` and `topics`, create missing topics, and check that this"
        " machine can reach the broker.",
    )
    if settings.topic_ids and (settings.topics or settings.topic_pattern):
        yield _try(
            "topic ids",
            lambda: _ask_for_ids(spark, settings),
            remedy="Install confluent-kafka, and correct the properties in `kafka` that"
            " it names; or set `topic_ids = false`.",
        )
    if settings.database_url or settings.clusters:
        yield _try(
            "database",
            lambda: _query_databases(spark, settings),
            remedy="Check that this machine can reach the outbox's database:"
            " DATABASE_URL, or each URL in `clusters`; and that its role may read the"
            " outbox, its archive and its parked table: `table` names the outbox.",
        )
    yield _try(
        "round trip",
        lambda: _round_trip(spark, settings, topic),
        remedy=f"Create the topic {topic!r}, and give this user write access to it"
        " and to the lake's folder.",
    )


def _try(name: str, check: Callable[[], str], *, remedy: str) -> CheckResult:
    try:
        detail = check()
    except Exception as error:  # noqa: BLE001 - every error is a result
        detail = first_line(error)
        return CheckResult(name=name, is_good=False, detail=detail, remedy=remedy)
    return CheckResult(name=name, is_good=True, detail=detail)


def _same_python(spark: SparkSession) -> str:
    from pyspark.sql import functions as F

    ask = F.udf(lambda _: ".".join(map(str, sys.version_info[:2])), useArrow=False)
    row = spark.range(1).select(ask("id").alias("version")).collect()[0]
    here = ".".join(map(str, sys.version_info[:2]))
    if row["version"] != here:
        raise ConfigurationError(
            f"the driver runs Python {here}, the workers run {row['version']}"
        )
    return f"{here} in driver and workers"


def _payloads(spark: SparkSession, settings: PipelineSettings) -> Iterator[CheckResult]:
    """Check that driver and workers can decode the declared values."""
    yield _try(
        "schemas",
        lambda: _try_schemas(spark, settings),
        remedy=f"Run `{install_command('registry')}` here and on Spark's workers;"
        " check `file` and `message` of the topic's schema.",
    )
    encoded = [s for s in settings.schemas.values() if isinstance(s, Encoded)]
    for registry in {schema.registry for schema in encoded if schema.registry}:
        yield _try(
            "registry",
            lambda at=registry: f"{at.url} has {', '.join(at.kinds())}",  # type: ignore[misc]
            remedy="Check that this machine can reach `registry`, and `registry_auth`.",
        )


def _try_schemas(spark: SparkSession, settings: PipelineSettings) -> str:
    counts = check_columns(settings.schemas)
    check_names(settings)
    found = [f"{topic} json, columns {count}" for topic, count in counts.items()]
    encoded = {
        topic: replace(schema, registry=None)
        for topic, schema in settings.schemas.items()
        if isinstance(schema, Encoded)
    }
    if encoded:
        columns = check(encoded)
        from .payloads.columnar import reason

        rows = spark.createDataFrame([(topic, b"") for topic in encoded], _VALUES)
        # Only shows that the workers can decode; the result does not matter.
        rows.select(reason(encoded, {})).collect()
        found += [
            f"{topic} {schema.format}, columns {len(columns[topic].fields)}"
            for topic, schema in encoded.items()
        ]
    return "; ".join(found)


def _count_topics(spark: SparkSession, settings: PipelineSettings) -> str:
    try:
        counted = read_topics(spark, settings).groupBy("topic").count().collect()
    except Exception as error:
        # The class depends on where Spark runs.
        if not is_of_missing_topic(str(error)):
            raise
        missing = [t for t in settings.topics if not _exists(spark, settings, t)]
        raise TopicMissing(f"Kafka has no topic {', '.join(missing)}.") from error
    return ", ".join(f"{row['topic']} {row['count']:,}" for row in counted) or "empty"


def _ask_for_ids(spark: SparkSession, settings: PipelineSettings) -> str:
    """Ask Kafka with the other client, as ingest does."""
    topics = configured_topics(KafkaAdmin(settings), spark, settings)
    without = [name for name, topic in topics.items() if not topic.id]
    if without:
        return f"this Kafka has none for {', '.join(without)}"
    return f"of {count(len(topics), 'topic')}"


def _exists(spark: SparkSession, settings: PipelineSettings, topic: str) -> bool:
    try:
        read_topics(spark, replace(settings, topics=(topic,))).isEmpty()
    except Exception:  # noqa: BLE001 - reading all topics has failed already
        return False
    return True


def _query_databases(spark: SparkSession, settings: PipelineSettings) -> str:
    # No row is read, but the tables have to be there, and this role may read them.
    tables = " OR ".join(
        f"EXISTS (SELECT FROM {name} WHERE false)"
        for name in jdbc.table_names(settings)
    )
    text = f"SELECT current_setting('server_version') AS version, {tables} AS has_rows"
    found = []
    for source, url in settings.outboxes().items():
        with jdbc.explained_outbox(settings):
            (row,) = jdbc.query(spark, url, text).collect()
        of_cluster = f"{source} " if settings.clusters else ""
        found.append(f"{of_cluster}PostgreSQL {row['version']}")
    return ", ".join(found)


def _round_trip(spark: SparkSession, settings: PipelineSettings, topic: str) -> str:
    token = uuid4().hex
    servers = {f"kafka.{key}": value for key, value in settings.kafka.items()}
    row = spark.sql(f"SELECT '{token}' AS key, '{token}' AS value")
    row.write.format("kafka").options(**servers).option("topic", topic).save()
    read = read_topics(spark, replace(settings, topics=(topic,), topic_pattern=""))
    path = f"{settings.lake}/_doctor"
    mine = read.where(f"CAST(key AS STRING) = '{token}'")
    mine.write.format("delta").mode("overwrite").save(path)
    if (found := spark.read.format("delta").load(path).count()) != 1:
        raise ConfigurationError(f"sent one row, read back {found}")
    return f"one row, from Kafka ({topic}) to {path} and back"
