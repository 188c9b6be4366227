"""
The process of one consumer: components, signals and exit codes.

The composition root of consumers: everything is built here from the settings.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final

from ..exceptions import ConfigurationError, OffsetsLost, StaleOffset
from ..kafka.consumer import KafkaSource
from ..kafka.consumer_output import KafkaDeadLetters, KafkaTransforms
from ..kafka.partitions import KafkaPartitions
from ..kafka.validation import check_properties, check_transforms
from ..message.incoming import TopicPartition
from ..message.middleware import load
from ..message.retry import RetryPolicy
from ..observability.message_times import MessageTimes
from ..observability.presentation import present
from ..settings.options import OutboxSettings
from ..shutdown import StopSignals, exit_at_once
from .consumer_context import ConsumerContext
from .consumer_monitoring import monitored
from .consumer_progress import Observer, Progress
from .effects import NoDatabase, TransactionalHandler
from .handlers import Group
from .output import Output
from .runner import OffsetStore, StartOffsets, Worker, beginnings, consume
from .transforming import TransformWorker
from .working import EffectsWorker

logger = logging.getLogger(__name__)

CLOSE_GRACE: Final = 1.5
"""Seconds after the drain time-out until the process ends regardless."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one run consumes, and until when."""

    name: str
    group: Group
    alias: str
    """The database of the handlers."""
    from_beginning: bool = False
    from_time: datetime | None = None
    """Read from the first messages at or after this moment."""
    until_end: bool = False


def run(plan: Plan, options: OutboxSettings, *, log_format: str, level: int) -> int:
    """
    Consume until a signal or the end of the topics; return the exit code.

    The first SIGTERM or SIGINT lets the current message finish, a second one
    exits at once with 143 or 130. Call it on the main thread.

    Raises:
        ConfigurationError: a setting is wrong; no message was processed.
        StaleOffset: a stored offset does not belong to its partition; the
            consumer has stopped.
    """
    with StopSignals() as wanted:
        check_properties(options)
        if plan.group.transforms:
            check_transforms(options)
        code = 0
        has_ended = threading.Event()
        times = MessageTimes()
        shown = present(log_format=log_format, level=level, line="ConsumerLine")
        with (
            shown as display,
            monitored(options, display.observers, group=plan.group.name, times=times),
        ):
            progress = _progress(plan, options, display.observers, times)
            # A handler, or a client that leaves its group, may hang.
            threading.Thread(
                target=_end_overdue,
                args=(
                    wanted.stop,
                    has_ended,
                    options.DRAIN_TIMEOUT + CLOSE_GRACE,
                    progress,
                ),
                name="outbox-overdue",
                daemon=True,
            ).start()
            try:
                _consume(plan, options, progress, wanted.stop)
            except OffsetsLost as error:
                # The text is complete; a traceback would not help.
                logger.error(  # noqa: TRY400
                    "The database has lost offsets: %s",
                    error,
                    extra={"action": "offsets_lost"},
                )
                code = 1
            except (ConfigurationError, StaleOffset):
                raise
            except Exception:
                logger.exception("Consumer stopped by an unexpected error")
                code = 1
            finally:
                has_ended.set()
                wanted.stop.set()
        return wanted.leave(code)


def _progress(
    plan: Plan,
    options: OutboxSettings,
    observers: Sequence[Observer],
    times: MessageTimes,
) -> Progress:
    interval = options.METER_INTERVAL
    if sys.stdout.isatty():
        # People watch the line on a terminal: keep it fresh.
        interval = min(interval, 1.0)
    return Progress(
        observers,
        name=plan.name,
        group=plan.group.name,
        interval=interval,
        clock=time.monotonic,
        times=times,
    )


def _consume(
    plan: Plan, options: OutboxSettings, progress: Progress, stop: threading.Event
) -> None:
    retry = RetryPolicy(
        attempts=options.CONSUMER_ATTEMPTS,
        backoff=options.RETRY_BACKOFF,
        backoff_max=options.RETRY_BACKOFF_MAX,
    )
    partitions = KafkaPartitions(options, name=plan.name)
    effects = TransactionalHandler(
        plan.group,
        alias=plan.alias,
        keeps_offsets=options.OFFSETS == "database",
        partitions=partitions,
        idle_timeout=options.CONSUMER_IDLE_TIMEOUT,
        is_traced=options.TRACING,
        middleware=load(options.MIDDLEWARE),
    )
    offset_store: OffsetStore = NoDatabase() if plan.group.transforms else effects
    rewound = beginnings if plan.from_beginning else None
    if plan.from_time is not None:
        rewound = partial(
            _starts, plan.group, options.DEAD_LETTER_SUFFIX, partitions, plan.from_time
        )
    start_offsets = StartOffsets(offset_store, retry=retry, stop=stop, rewound=rewound)
    source = KafkaSource(
        options,
        group=plan.group.name,
        topics=plan.group.topics,
        name=plan.name,
        start_offsets=start_offsets,
        delays=plan.group.delays,
        on_change=lambda: progress.changed(source),
    )
    context = ConsumerContext(
        group=plan.group,
        membership=source,
        retry=retry,
        suffix=options.DEAD_LETTER_SUFFIX,
        progress=progress,
        stop=stop,
        report=lambda: progress.tick(source),
    )
    worker: Worker
    if plan.group.transforms:
        name = f"{plan.group.name}-{plan.name}"
        worker = TransformWorker(
            context,
            output=Output(options),
            transactions=KafkaTransforms(options, transactional_id=name, member=source),
            tokens=source,
        )
    else:
        dead_letters = KafkaDeadLetters(options, name=plan.name)
        worker = EffectsWorker(
            context, effects=effects, offsets=source, dead_letters=dead_letters
        )
    start_offsets.wait_for_database()
    consume(
        source,
        worker,
        progress,
        start_offsets=start_offsets,
        stop=stop,
        until_end=plan.until_end,
    )


def _starts(
    group: Group,
    suffix: str,
    partitions: KafkaPartitions,
    moment: datetime,
    assigned: Sequence[TopicPartition],
) -> dict[TopicPartition, int]:
    """Return where to start at a moment; what waits for a retry is never passed."""
    first_hand = [at for at in assigned if not group.is_retry(at[0], suffix)]
    return partitions.at_time(first_hand, moment)


def _end_overdue(
    stop: threading.Event,
    has_ended: threading.Event,
    timeout: float,
    progress: Progress,
) -> None:
    """Exit when the process is still running too long after a stop request."""
    stop.wait()
    if has_ended.wait(timeout):
        return
    logger.error(
        "The consumer did not stop within %.1f s; what was not committed will be "
        "redelivered",
        timeout,
        extra={"action": "stop_overran"},
    )
    progress.stopped()
    sys.stdout.flush()
    exit_at_once(0)
