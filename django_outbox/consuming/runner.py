"""
The loop of one consumer: poll, work, commit, tell; until it is to end.

One thread does it all. The group is served between two rounds and while
something is waited for, so that a slow database costs no partition.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from threading import Event as Flag
from typing import Final, Protocol

from django.db import Error, close_old_connections

from ..exceptions import KafkaError, TableMissing
from ..message.incoming import ConsumedMessage, TopicPartition
from .consumer_progress import Progress
from .consumer_retry import RetryPolicy
from .ports import MessageSource

logger = logging.getLogger(__name__)

POLL_TIMEOUT: Final = 0.2
"""Seconds to wait for a message before it is asked whether to end."""


class Worker(Protocol):
    """What becomes of messages: `EffectsWorker` or `TransformWorker`."""

    @property
    def limit(self) -> int:
        """How many messages it takes at once."""

    def start(self) -> None:
        """Make ready before the first message; return when that is done."""

    def work(self, messages: Sequence[ConsumedMessage]) -> None:
        """See to them; return early when the process is to end."""

    def close(self) -> None:
        """Let clients go."""


class OffsetStore(Protocol):
    """Who knows where partitions start: `TransactionalHandler` or `NoDatabase`."""

    def start_offsets(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Where to start, for partitions that Kafka does not know better."""

    def rewind(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Forget how far they were; return their beginnings."""

    def settle(self, ends: Mapping[TopicPartition, int]) -> None:
        """Store the ends of partitions that have been read and done completely."""

    def ping(self) -> None:
        """Raise unless the database answers."""


class StartOffsets:
    """
    Says where partitions start, however long database or broker are away.

    Args:
        from_beginning: read each partition from its beginning, until a message of it
            is done; where it is lost before that, whoever gets it begins there again.
    """

    def __init__(
        self,
        offset_store: OffsetStore,
        *,
        retry: RetryPolicy,
        from_beginning: bool,
        stop: Flag,
    ) -> None:
        self._offset_store = offset_store
        self._retry = retry
        self._from_beginning = from_beginning
        self._stop = stop
        self._begun: set[TopicPartition] = set()

    def __call__(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}

        def ask() -> None:
            rewound: dict[TopicPartition, int] = {}
            if self._from_beginning:
                fresh = [at for at in partitions if at not in self._begun]
                rewound = self._offset_store.rewind(fresh)
            found.update({**self._offset_store.start_offsets(partitions), **rewound})

        self._insist(ask)
        return found

    def begun(self, messages: Sequence[ConsumedMessage]) -> None:
        """Take note of messages that are done: their partitions go on from there."""
        self._begun.update(message.topic_partition for message in messages)

    def settle(self, ends: Mapping[TopicPartition, int]) -> None:
        """Store how far partitions have been read that are done completely."""
        try:
            close_old_connections()
            self._offset_store.settle(ends)
        except Error as error:
            logger.debug("Could not store the ends of partitions: %s", error)

    def wait_for_database(self) -> None:
        """Return when the database answers, or when the process is to end."""
        self._insist(self._offset_store.ping)

    def _insist(self, ask: Callable[[], None]) -> bool:
        tries = 0
        while not self._stop.is_set():
            try:
                close_old_connections()
                ask()
            except (Error, KafkaError, TableMissing) as error:
                tries += 1
                logger.log(
                    logging.WARNING if tries == 1 else logging.DEBUG,
                    "Database or broker unavailable, retrying: %s",
                    str(error).partition("\n")[0],
                    extra={"action": "consumer_waits"},
                )
                self._stop.wait(self._retry.delay(tries))
            else:
                return True
        return False


def consume(
    source: MessageSource,
    worker: Worker,
    progress: Progress,
    *,
    start_offsets: StartOffsets,
    stop: Flag,
    until_end: bool,
) -> None:
    """Run until `stop` is set, or until all has been read; leave the group."""
    try:
        worker.start()
        while not stop.is_set():
            messages = source.poll(worker.limit, POLL_TIMEOUT)
            worker.work(messages)
            start_offsets.begun(
                [message for message in messages if source.owns(message)]
            )
            source.commit()
            if progress.tick(source):
                start_offsets.settle(source.ends())
            if until_end and not messages and source.is_at_end:
                break
        start_offsets.settle(source.ends())
    finally:
        progress.read(source)
        worker.close()
        source.close()
        progress.stopped()
