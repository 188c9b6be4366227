"""
Runs ingest and refine: once to the end of the topics, or for ever.

`__main__.py` enters it with a session and a flag that SIGTERM sets. Then the
batches at hand are finished; what Spark has begun behind them is run again
the next time, as after a crash.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from .. import exceptions
from .lake import tables
from .lake.ingest import start_ingest
from .lake.refine import start_refine
from .query_progress import Batches, Observer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from .pipeline_settings import PipelineSettings

RETRY: Final = 10.0
"""Seconds before the queries start again, when what they need is away."""

LOOK: Final = 0.3
"""Seconds between two looks at the queries."""

PARTS: Final = ("ingest", "refine")
"""The steps, in order."""

_OURS: Final = re.compile(r"^django_outbox\.exceptions\.(\w+): (.+)$", re.MULTILINE)
"""The end of a traceback that Spark hands on as text."""

_KAFKA_AWAY: Final = re.compile(
    r"org\.apache\.kafka\.common\.errors\."
    r"(?:Timeout|Disconnect|Network)Exception: (.+)"
)
"""What Spark hands on of its own reader."""

NO_TOPIC: Final = "UnknownTopicOrPartitionException"
"""What it says of a topic that does not exist, without its name."""


def run_once(
    spark: SparkSession,
    settings: PipelineSettings,
    *,
    stop: threading.Event,
    observers: Sequence[Observer] = (),
    parts: Sequence[str] = PARTS,
    reached: Callable[[str], None] = lambda _: None,
) -> None:
    """
    Bring all that the topics hold now into the tables.

    Args:
        stop: Ends the run when the batch at hand is finished.
        parts: Steps to run.
        reached: Hears the name of each table when a batch of refine is in it.

    Raises:
        OutboxError: what a step of ours has raised in a batch.
        StreamingQueryException: a query failed otherwise; says why.
    """
    tables.create(spark, settings)
    for part in parts:
        if not stop.is_set():
            query = _start(
                part, spark, settings, {"availableNow": True}, reached=reached
            )
            supervise([query], stop=stop, observers=observers)


def run_every(
    spark: SparkSession,
    settings: PipelineSettings,
    *,
    seconds: float,
    stop: threading.Event,
    observers: Sequence[Observer] = (),
    parts: Sequence[str] = PARTS,
    report: Callable[[str], None] = lambda _: None,
) -> None:
    """
    Look for news every so many seconds, until told to stop.

    While Kafka or the schema registry is away, begin again and again.

    Args:
        report: Hears, in a line, what is away each time.

    Raises:
        OutboxError: what a step of ours has raised in a batch, and may not pass.
        StreamingQueryException: a query failed otherwise; says why.
    """
    tables.create(spark, settings)
    trigger = {"processingTime": f"{seconds} seconds"}
    while not stop.is_set():
        queries = [_start(part, spark, settings, trigger) for part in parts]
        try:
            supervise(queries, stop=stop, observers=observers)
        except exceptions.OutboxError as error:
            if not error.retriable:
                raise
            report(f"{error} The next attempt is in {RETRY:.0f} s.")
            stop.wait(RETRY)
        else:
            return


def _start(
    part: str,
    spark: SparkSession,
    settings: PipelineSettings,
    trigger: Mapping[str, Any],
    reached: Callable[[str], None] = lambda _: None,
) -> StreamingQuery:
    if part == "ingest":
        return start_ingest(spark, settings, trigger=trigger)
    return start_refine(spark, settings, trigger=trigger, reached=reached)


def supervise(
    queries: Sequence[StreamingQuery],
    *,
    stop: threading.Event,
    observers: Sequence[Observer] = (),
) -> None:
    """Follow the queries until one ends, or until told to stop; then end all."""
    batches = [Batches(query) for query in queries]

    def tell() -> None:
        for reading in [r for of_query in batches for r in of_query.new()]:
            for observe in observers:
                observe(reading)

    try:
        while all(query.isActive for query in queries) and not stop.wait(LOOK):
            tell()
    finally:
        for query in queries:
            finish(query)
        tell()
    for query in queries:
        if error := query.exception():
            raise translate(error)


def translate(error: Exception) -> Exception:
    """Return the error that ended a query, as one of ours where there is one."""
    # The last one: those before it are its causes.
    for name, message in reversed(_OURS.findall(str(error))):
        kind = getattr(exceptions, name, None)
        if isinstance(kind, type) and issubclass(kind, exceptions.OutboxError):
            return kind(message)
    if away := _KAFKA_AWAY.search(str(error)):
        return exceptions.KafkaUnavailable(f"Kafka does not answer: {away[1]}.")
    if NO_TOPIC in str(error):
        return exceptions.TopicMissing(
            "Kafka does not have all of the topics; `doctor` names the missing ones."
        )
    return error


def finish(query: StreamingQuery) -> None:
    """End a query when the batch at hand is finished."""
    at_hand = _finished(query)
    while (
        query.isActive
        and query.status["isTriggerActive"]
        and _finished(query) == at_hand
    ):
        time.sleep(LOOK / 10)
    query.stop()


def _finished(query: StreamingQuery) -> int:
    """The number of the last finished batch."""
    progress = query.lastProgress
    return -1 if progress is None else int(progress.batchId)
