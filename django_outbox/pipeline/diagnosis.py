"""
What stands between this machine and a running pipeline, and the cure of each.

`python -m django_outbox.pipeline doctor` runs all examinations, and one row
takes the whole way: to a topic of its own, from there to a table, and back.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from ..exceptions import ConfigurationError, TopicMissing, install_command
from ..jars.find_java import find_java
from .audit import jdbc
from .lake.ingest import read_topics
from .lake.records import check_columns
from .payloads.declared import Encoded
from .payloads.decoder import check
from .pipeline_run import NO_TOPIC
from .session import open_session, place, spark_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .pipeline_settings import PipelineSettings

TOPIC: Final = "outbox-doctor"
"""Where the row goes; made by the broker, or by hand where it may not."""


_VALUES: Final = "topic STRING, value BINARY"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The outcome of one examination."""

    name: str
    is_good: bool
    detail: str
    cure: str = ""
    """What to do when it is not good."""


def examine(settings: PipelineSettings, *, topic: str = TOPIC) -> Iterator[Finding]:
    """Yield the findings as they come; after a bad session there are no more."""
    if place() == "local":
        yield _try("java", find_java, cure="Install Java 17 or newer.")
        yield _try(
            "jars",
            lambda: f"{len(spark_jars())} archives, each with its pinned sha256",
            cure="Give access to the central Maven repository, or copy the cache.",
        )
    session = _try(
        "spark",
        lambda: f"{open_session(settings).version}, {place()}",
        cure=f"Look at the error; `{install_command('spark')}` has PySpark.",
    )
    yield session
    if not session.is_good:
        return
    spark = open_session(settings)
    yield _try(
        "python",
        lambda: _same_python(spark),
        cure="Set PYSPARK_PYTHON to the same Python on driver and workers.",
    )
    if settings.schemas:
        yield from _payloads(spark, settings)
    yield _try(
        "topics",
        lambda: _count_topics(spark, settings),
        cure="Set kafka and topics, make those that are missing; look whether the"
        " broker answers from here.",
    )
    if settings.database_url or settings.clusters:
        yield _try(
            "database",
            lambda: _ask_database(spark, settings),
            cure="Look whether DATABASE_URL, or each of `clusters`, leads to the"
            " outbox's database from here.",
        )
    yield _try(
        "round trip",
        lambda: _round_trip(spark, settings, topic),
        cure=f"Create the topic {topic!r}, and let this user write to it and below"
        " the lake's folder.",
    )


def _try(name: str, examination: Callable[[], str], *, cure: str) -> Finding:
    try:
        detail = examination()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return Finding(name=name, is_good=False, detail=lines[0], cure=cure)
    return Finding(name=name, is_good=True, detail=detail)


def _same_python(spark: SparkSession) -> str:
    from pyspark.sql import functions as F

    ask = F.udf(lambda _: ".".join(map(str, sys.version_info[:2])), useArrow=False)
    row = spark.range(1).select(ask("id").alias("version")).collect()[0]
    here = ".".join(map(str, sys.version_info[:2]))
    if row["version"] != here:
        raise ConfigurationError(
            f"the driver has Python {here}, the workers have {row['version']}"
        )
    return f"{here} here and in the workers"


def _payloads(spark: SparkSession, settings: PipelineSettings) -> Iterator[Finding]:
    """Whether values can be decoded, Avro and Protobuf in the workers, too."""
    yield _try(
        "schemas",
        lambda: _try_schemas(spark, settings),
        cure=f"`{install_command('registry')}`, here and where Spark's workers"
        " run; look at the file and the message of the topic's schema.",
    )
    encoded = [s for s in settings.schemas.values() if isinstance(s, Encoded)]
    for registry in {schema.registry for schema in encoded if schema.registry}:
        yield _try(
            "registry",
            lambda at=registry: f"{at.url} has {', '.join(at.kinds())}",  # type: ignore[misc]
            cure="Look whether `registry` answers from here, and at `registry_auth`.",
        )


def _try_schemas(spark: SparkSession, settings: PipelineSettings) -> str:
    counts = check_columns(settings.schemas)
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
        # What they say of nothing does not matter: that they can say it does.
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
        # Depending on where Spark runs, it is one of several classes.
        if NO_TOPIC not in str(error):
            raise
        missing = [t for t in settings.topics if not _is_there(spark, settings, t)]
        raise TopicMissing(f"Kafka does not have {', '.join(missing)}.") from error
    return ", ".join(f"{row['topic']} {row['count']:,}" for row in counted) or "empty"


def _is_there(spark: SparkSession, settings: PipelineSettings, topic: str) -> bool:
    try:
        read_topics(spark, replace(settings, topics=(topic,))).isEmpty()
    except Exception:  # noqa: BLE001 - that they cannot be read together is known
        return False
    return True


def _ask_database(spark: SparkSession, settings: PipelineSettings) -> str:
    text = "SELECT current_setting('server_version') AS version"
    found = []
    for source, url in settings.outboxes().items():
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
        raise ConfigurationError(f"one row was sent and {found} came back")
    return f"one row, Kafka ({topic}) to {path} and back"
