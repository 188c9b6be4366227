"""
The loop of one consumer: poll, work, commit and report, until it stops.

One thread does all of it. It serves the group between two rounds and during
waits, so a slow database costs no partition.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from threading import Event as Flag
from typing import Final, Protocol

from django.db import Error, close_old_connections

from ..exceptions import ClaimHeld, KafkaError, TableMissing
from ..message.incoming import BEGINNING, ConsumedMessage, TopicPartition
from ..message.retry import RetryPolicy
from .connections import close_idle_connections
from .consumer_context import log_outage
from .consumer_progress import Progress
from .ports import MessageSource

logger = logging.getLogger(__name__)

POLL_TIMEOUT: Final = 0.2
"""Seconds to wait for a message before the stop flag is checked again."""


class Worker(Protocol):
    """Processes messages: with effects in a database, or as a transformation."""

    @property
    def limit(self) -> int:
        """How many messages it takes in one round."""

    def start(self) -> None:
        """Prepare for the first message; return when ready."""

    def work(self, messages: Sequence[ConsumedMessage]) -> None:
        """Process messages; return early when the process stops."""

    def rest(self) -> None:
        """Close clients that have had nothing to send for a while."""

    def close(self) -> None:
        """Close clients."""


class OffsetStore(Protocol):
    """The offsets that a group keeps outside of Kafka, if it does."""

    def start_offsets(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return the stored offsets of those partitions that have one."""

    def rewind(self, starts: Mapping[TopicPartition, int]) -> None:
        """Replace the stored offsets of these partitions, where they have one."""

    def settle(self, ends: Mapping[TopicPartition, int]) -> None:
        """Store the ends of partitions whose messages are all done."""

    def ping(self) -> None:
        """Raise unless the database answers."""


def beginnings(partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the beginnings of partitions."""
    return dict.fromkeys(partitions, BEGINNING)


class StartOffsets:
    """
    Decides where partitions start; retries while database or broker are away.

    Args:
        rewound: returns where to start partitions of which no message has been done
            since this process started; None: where the group has stopped.
    """

    def __init__(
        self,
        offset_store: OffsetStore,
        *,
        retry: RetryPolicy,
        stop: Flag,
        rewound: Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, int]]
        | None = None,
    ) -> None:
        self._offset_store = offset_store
        self._retry = retry
        self._rewound = rewound
        self._stop = stop
        self._begun: set[TopicPartition] = set()

    def __call__(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}

        def ask() -> None:
            starts: Mapping[TopicPartition, int] = {}
            if self._rewound is not None:
                starts = self._rewound(
                    [at for at in partitions if at not in self._begun]
                )
                self._offset_store.rewind(starts)
            found.update({**self._offset_store.start_offsets(partitions), **starts})

        self._insist(ask)
        return found

    def begun(self, messages: Sequence[ConsumedMessage]) -> None:
        """Note messages that are done: their partitions continue after them."""
        self._begun.update(message.topic_partition for message in messages)

    def settle(self, ends: Mapping[TopicPartition, int]) -> None:
        """Store the ends of partitions whose messages are all done, if possible."""
        try:
            close_old_connections()
            self._offset_store.settle(ends)
        except (Error, TableMissing, ClaimHeld) as error:
            logger.debug("Could not store the ends of partitions: %s", error)

    def wait_for_database(self) -> None:
        """Return when the database answers or the process stops."""
        self._insist(self._offset_store.ping)

    def _insist(self, ask: Callable[[], None]) -> None:
        tries = 0
        while not self._stop.is_set():
            try:
                close_old_connections()
                ask()
            except (Error, KafkaError, TableMissing) as error:
                tries += 1
                log_outage(error, tries)
                self._stop.wait(self._retry.delay(tries))
            else:
                return


def consume(
    source: MessageSource,
    worker: Worker,
    progress: Progress,
    *,
    start_offsets: StartOffsets,
    stop: Flag,
    until_end: bool,
) -> None:
    """Run until `stop` is set, or until the end of all partitions; leave the group."""
    try:
        worker.start()
        settled = progress.readings
        while not stop.is_set():
            messages = source.poll(worker.limit, POLL_TIMEOUT)
            if messages:
                worker.work(messages)
            else:
                close_idle_connections()
            start_offsets.begun(
                [message for message in messages if source.owns(message)]
            )
            source.commit()
            worker.rest()
            progress.tick(source)
            # The worker may have published one, too.
            if progress.readings > settled:
                settled = progress.readings
                start_offsets.settle(source.ends())
            if until_end and not messages and source.is_at_end:
                break
        start_offsets.settle(source.ends())
    finally:
        progress.read(source)
        worker.close()
        source.close()
        progress.stopped()
