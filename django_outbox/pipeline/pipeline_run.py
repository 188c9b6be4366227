"""
Runs ingest and refine: once to the end of the topics, or continuously.

When asked to stop, it finishes the current batches. A batch that Spark started
after them is repeated in the next run, as after a crash.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from .. import exceptions
from .kafka_errors import kafka_error, reason_of_loss
from .lake import tables
from .lake.batch_writer import BatchCounts
from .lake.ingest import start_ingest
from .lake.reader import reason_to_rebuild
from .lake.rebuilding import rebuild
from .lake.refine import NAME as REFINE
from .lake.refine import start_refine
from .lake.topic_ids import TopicIds
from .query_progress import STEPS, Batches, Observer, Reading

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from .pipeline_settings import PipelineSettings

RETRY_INTERVAL: Final = 10.0
"""Seconds before the queries restart after an outage."""

POLL_INTERVAL: Final = 0.3
"""Seconds between two checks of the queries."""

_OURS: Final = re.compile(r"^django_outbox\.exceptions\.(\w+): (.+)$", re.MULTILINE)
"""The last line of a traceback of ours, which Spark reports as text."""

_ADDED: Final = re.compile(r"Added partition (\S+)-(\d+) starts from (\d+) ")
"""Spark's reason for a partition that the checkpoint does not know: topic, number and
first offset."""

_PLAN: Final = "=== Streaming Query ==="
"""Where the description of the query begins in Spark's error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """What a run calls."""

    report: Callable[[str], None] = lambda _: None
    """Gets a line for each outage, for a new checkpoint of ingest, and for each slice
    of a rebuild."""
    check: Callable[[], None] = lambda: None
    """Must raise if this process may no longer be the only writer; for a rebuild."""


NO_HOOKS: Final = Hooks()


def run_once(
    spark: SparkSession,
    settings: PipelineSettings,
    *,
    stop: threading.Event,
    observers: Sequence[Observer] = (),
    steps: Sequence[str] = STEPS,
    hooks: Hooks = NO_HOOKS,
) -> None:
    """
    Load all records that the topics hold now into the tables.

    Args:
        stop: When set, the run ends after the current batch.
        steps: Steps to run.

    Raises:
        TopicRecreated: a topic was deleted and created again.
        RecordsDeleted: Kafka no longer has records that ingest has not read.
        OutboxError: our own code failed in a batch.
        StreamingQueryException: a query failed for another reason.
    """
    tables.create(spark, settings)
    for step in steps:
        if not stop.is_set():
            trigger, counts = {"availableNow": True}, dict[int, BatchCounts]()
            query = start_step(step, spark, settings, trigger, counts, hooks=hooks)
            with _recreated_topics_named(spark, settings):
                supervise([query], stop=stop, observers=observers, counts=counts)


def run_every(
    spark: SparkSession,
    settings: PipelineSettings,
    *,
    seconds: float,
    stop: threading.Event,
    observers: Sequence[Observer] = (),
    steps: Sequence[str] = STEPS,
    hooks: Hooks = NO_HOOKS,
) -> None:
    """
    Load new records at an interval until `stop` is set.

    Restarts the queries after outages of Kafka or of the schema registry.

    Raises:
        TopicRecreated: a topic was deleted and created again.
        RecordsDeleted: Kafka no longer has records that ingest has not read.
        OutboxError: our own code failed in a batch, and a retry will not help.
        StreamingQueryException: a query failed for another reason.
    """
    tables.create(spark, settings)
    trigger = {"processingTime": f"{round(seconds * 1000)} milliseconds"}
    while not stop.is_set():
        queries: list[StreamingQuery] = []
        counts = dict[int, BatchCounts]()
        try:
            queries.extend(
                start_step(step, spark, settings, trigger, counts, hooks=hooks)
                for step in steps
            )
            watching = [*observers, *_topic_watch(spark, settings, steps)]
            with _recreated_topics_named(spark, settings):
                supervise(queries, stop=stop, observers=watching, counts=counts)
        except exceptions.OutboxError as error:
            # One may have started before the other failed to.
            for query in queries:
                finish(query)
            if not error.retriable:
                raise
            hooks.report(f"{error} Retrying in {RETRY_INTERVAL:.0f} s.")
            stop.wait(RETRY_INTERVAL)
        else:
            return


def start_step(
    step: str,
    spark: SparkSession,
    settings: PipelineSettings,
    trigger: Mapping[str, Any],
    counts: dict[int, BatchCounts],
    *,
    hooks: Hooks = NO_HOOKS,
) -> StreamingQuery:
    """
    Start ingest or refine; refine rebuilds the tables first if it has to.

    Args:
        counts: Where refine puts the counts of its batches.
    """
    if step == "ingest":
        return start_ingest(spark, settings, trigger=trigger, report=hooks.report)
    if reason := reason_to_rebuild(spark, settings):
        hooks.report(reason)
        for done in rebuild(spark, settings, check=hooks.check):
            hooks.report(str(done))
    return start_refine(spark, settings, trigger=trigger, counted=counts.__setitem__)


def _topic_watch(
    spark: SparkSession, settings: PipelineSettings, steps: Sequence[str]
) -> list[Observer]:
    """Return what compares the topics' ids after each batch of ingest."""
    if not (settings.topic_ids and "ingest" in steps):
        return []
    ids = TopicIds(spark, settings)

    def observe(reading: Reading) -> None:
        if reading.query == "ingest":
            ids.check()

    return [observe]


@contextmanager
def _recreated_topics_named(
    spark: SparkSession, settings: PipelineSettings
) -> Iterator[None]:
    """Tell records that Kafka has deleted from those of a topic that is new."""
    try:
        yield
    except exceptions.RecordsDeleted:
        if settings.topic_ids:
            TopicIds(spark, settings).check()
        raise


def supervise(
    queries: Sequence[StreamingQuery],
    *,
    stop: threading.Event,
    observers: Sequence[Observer] = (),
    counts: dict[int, BatchCounts],
) -> None:
    """
    Run the queries until one ends or `stop` is set; then end them all.

    Args:
        counts: Where refine puts the counts of its batches.
    """
    batches = [
        Batches(query, counts if query.name == REFINE else {}) for query in queries
    ]

    def notify_observers() -> None:
        for reading in [r for of_query in batches for r in of_query.new()]:
            for observe in observers:
                observe(reading)

    try:
        while all(query.isActive for query in queries):
            if stop.wait(POLL_INTERVAL):
                break
            notify_observers()
    finally:
        for query in queries:
            finish(query)
        notify_observers()
    for query in queries:
        if error := query.exception():
            raise translate(error)


def translate(error: Exception) -> Exception:
    """Convert the error that ended a query into one of ours, if one matches."""
    # The last match: earlier ones are its causes.
    for name, message in reversed(_OURS.findall(str(error))):
        kind = getattr(exceptions, name, None)
        if isinstance(kind, type) and issubclass(kind, exceptions.OutboxError):
            return kind(message)
    reason = reason_of_loss(str(error).partition(_PLAN)[0])
    if added := _ADDED.search(reason):
        topic, partition, first = added.groups()
        return exceptions.RecordsDeleted(
            f"Ingest has not read partition {partition} of {topic} yet, and Kafka has"
            f" deleted the records before offset {first}. Run `reset {topic}` to read"
            " the topic from the first record that Kafka still has."
        )
    if reason:
        return exceptions.RecordsDeleted(
            f"Kafka no longer has records that ingest has not read: {reason}. Retention"
            " or an administrator deleted them. The lake keeps all rows, and `audit`"
            " counts the messages that it lacks. `reset TOPIC` reads the topic from the"
            " first record that Kafka still has, and drops a topic that was deleted."
        )
    return kafka_error(str(error)) or error


def finish(query: StreamingQuery) -> None:
    """Stop a query after its current batch."""
    finished = _last_finished(query)
    while (
        query.isActive
        and query.status["isTriggerActive"]
        and _last_finished(query) == finished
    ):
        time.sleep(POLL_INTERVAL / 10)
    query.stop()


def _last_finished(query: StreamingQuery) -> int:
    """Return the number of the last finished batch; -1 before the first."""
    progress = query.lastProgress
    return -1 if progress is None else int(progress.batchId)
