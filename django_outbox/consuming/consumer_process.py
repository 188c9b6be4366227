"""
Runs the consumer of one group as a process: parts, signals, exit codes.

`manage.py runconsumer` parses and calls `run()`, which builds everything from
the settings: the composition root of consumers.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ..exceptions import StaleOffset
from ..kafka.consumer import KafkaSource
from ..kafka.consumer_output import KafkaDeadLetters, KafkaTransforms
from ..kafka.partitions import KafkaPartitions
from ..kafka.validation import check_properties
from ..observability.presentation import present_consumer
from ..settings.options import OutboxSettings
from ..shutdown import StopSignals, exit_at_once
from .attempts import Patience
from .consumer_progress import Observer, Progress
from .effects import NoDatabase, TransactionalHandler
from .handlers import Group
from .job import ConsumerContext
from .output import Output
from .runner import OffsetStore, StartOffsets, Worker, consume
from .transforming import TransformWorker
from .working import EffectsWorker

logger = logging.getLogger(__name__)

GRACE: Final = 1.5
"""Seconds after the drain time-out in which everything has to be closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one run is to do."""

    name: str
    group: Group
    alias: str
    """The database of the handlers."""
    from_beginning: bool = False
    until_end: bool = False


def run(plan: Plan, options: OutboxSettings, *, log_format: str, level: int) -> int:
    """
    Consume until a signal, or the end of the topics, ends it; return the exit code.

    The first SIGTERM or SIGINT lets the message at hand be finished, a second
    one exits at once with 143 or 130. Call it on the main thread.

    Raises:
        ConfigurationError: before anything was started.
        StaleOffset: a stored offset does not belong to its partition; it has ended.
    """
    with StopSignals() as wanted:
        check_properties(options)
        has_ended = threading.Event()
        shown = present_consumer(log_format=log_format, level=level)
        with shown as observers:
            progress = _progress(plan, options, observers)
            # Needed where a handler, or a client that leaves, hangs.
            threading.Thread(
                target=_end_overdue,
                args=(wanted.stop, has_ended, options.DRAIN_TIMEOUT + GRACE, progress),
                name="outbox-overdue",
                daemon=True,
            ).start()
            try:
                _consume(plan, options, progress, wanted.stop)
            except StaleOffset:
                raise
            except Exception:
                logger.exception("The consumer ended by an error")
                return 1
            finally:
                has_ended.set()
                wanted.stop.set()
    return 0


def _progress(
    plan: Plan, options: OutboxSettings, observers: Sequence[Observer]
) -> Progress:
    interval = options.METER_INTERVAL
    if sys.stdout.isatty():
        # A line that people look at should not be five seconds old.
        interval = min(interval, 1.0)
    return Progress(
        observers,
        name=plan.name,
        group=plan.group.name,
        interval=interval,
        clock=time.monotonic,
    )


def _consume(
    plan: Plan, options: OutboxSettings, progress: Progress, stop: threading.Event
) -> None:
    patience = Patience.of(options)
    effects = TransactionalHandler(
        plan.group,
        alias=plan.alias,
        keeps_offsets=options.OFFSETS == "database",
        partitions=KafkaPartitions(options, name=plan.name),
        idle_timeout=options.CONSUMER_IDLE_TIMEOUT,
    )
    positions: OffsetStore = NoDatabase() if plan.group.transforms else effects
    starts = StartOffsets(
        positions, patience=patience, from_beginning=plan.from_beginning, stop=stop
    )
    source = KafkaSource(
        options,
        group=plan.group.name,
        topics=plan.group.topics,
        name=plan.name,
        starts=starts,
        on_change=lambda: progress.changed(source),
    )
    job = ConsumerContext(
        group=plan.group,
        source=source,
        patience=patience,
        suffix=options.DEAD_LETTER_SUFFIX,
        progress=progress,
        stop=stop,
    )
    worker: Worker
    if plan.group.transforms:
        name = f"{plan.group.name}-{plan.name}"
        worker = TransformWorker(
            job,
            output=Output(options),
            transactions=KafkaTransforms(options, transactional_id=name, member=source),
        )
    else:
        letters = KafkaDeadLetters(options, name=plan.name)
        worker = EffectsWorker(job, effects=effects, dead_letters=letters)
    starts.wait_for_database()
    consume(
        source,
        worker,
        progress,
        starts=starts,
        stop=stop,
        until_end=plan.until_end,
    )


def _end_overdue(
    stop: threading.Event,
    has_ended: threading.Event,
    timeout: float,
    progress: Progress,
) -> None:
    """End the process when it has not ended in time after it was asked to."""
    stop.wait()
    if has_ended.wait(timeout):
        return
    logger.error(
        "The message at hand was not finished in %.1f s; it rolls back and comes again",
        timeout,
        extra={"action": "stop_overran"},
    )
    progress.stopped()
    sys.stdout.flush()
    exit_at_once(0)
