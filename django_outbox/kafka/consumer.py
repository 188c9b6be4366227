"""
A member of a consumer group: the adapter of `MessageSource`.

Offsets are committed after the effects, never before: `done()` marks a message,
`commit()` sends the offsets without waiting, and a revoked partition gets its
last commit before it is given up.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaException, Message
from confluent_kafka import KafkaError as DriverError
from confluent_kafka import TopicPartition as DriverTopicPartition

from ..exceptions import KafkaUnavailable
from ..message.incoming import ConsumedMessage, TopicPartition
from ..settings.options import OutboxSettings
from .client_errors import ClientErrors
from .clients import make
from .config import group_config, named, redacted
from .conversion import consumed
from .delayed_messages import DelayedMessages
from .failures import STALE_MEMBER, end_of_reading
from .partitions import first_and_end

logger = logging.getLogger(__name__)

COMMIT_INTERVAL: Final = 0.5
"""Seconds between two commits: after a crash, that much arrives again as repeats."""

COORDINATOR_TIMEOUT: Final = 10.0
"""Seconds for one request to the group coordinator."""

LEAVE_TIMEOUT: Final = 1.0
"""Seconds for giving partitions up when a member closes."""

_ROUTINE: Final = STALE_MEMBER | {DriverError._NO_OFFSET}
"""Refusals of a commit in every rebalance; the next owner processes the messages."""


class KafkaSource:
    """
    One member of a group; one object serves one thread.

    Args:
        options: the settings of the outbox.
        group: the consumer group.
        topics: the topics to subscribe to.
        name: the process, as `client.id` shows it to operators.
        start_offsets: returns, for newly assigned partitions, the offsets to start
            at; the others start at the group's committed offsets. It may block,
            and the group waits.
        delays: seconds by topic: its messages are returned that long after their
            timestamps. Their partitions wait meanwhile, the others go on.
        on_change: called when partitions were assigned or revoked.
    """

    def __init__(
        self,
        options: OutboxSettings,
        *,
        group: str,
        topics: Sequence[str],
        name: str = "",
        start_offsets: Callable[
            [Sequence[TopicPartition]], Mapping[TopicPartition, int]
        ] = lambda _: {},
        delays: Mapping[str, float] = MappingProxyType({}),
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._config = group_config(options, group) | named(name)
        self._topics = list(topics)
        self._start_offsets = start_offsets
        self._delayed = DelayedMessages(delays)
        self._on_change = on_change
        self._errors = ClientErrors(
            f"consumer group {group}", action="consume", config=self._config
        )
        self._consumer: Consumer | None = None
        self._buffer: list[ConsumedMessage] = []
        self._owned: set[TopicPartition] = set()
        self._member_id = ""
        self._taken: set[TopicPartition] = set()
        """Partitions that were revoked or lost since the last poll ended."""
        self._at_end: dict[TopicPartition, int] = {}
        """Ends of the partitions that have been read to their ends."""
        self._at_work: dict[TopicPartition, int] = {}
        """Offsets of the last messages that were returned and are not done."""
        self._done: dict[TopicPartition, int] = {}
        """Offsets to commit."""
        self._is_committing, self._committed_at = False, 0.0
        self.is_member, self._joined_at = False, 0.0
        """When partitions were last assigned."""
        self._settling = 2 * options.SESSION_TIMEOUT
        """Seconds after which a member without partitions will not get any."""

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        return tuple(sorted(self._owned))

    @property
    def is_at_end(self) -> bool:
        if not self.is_member or self._buffer or self._delayed.partitions:
            return False
        if not self._owned:
            # A new member gets nothing at first, and then what others give up.
            return time.monotonic() - self._joined_at >= self._settling
        return self._owned <= self._at_end.keys()

    def poll(self, limit: int, timeout: float) -> list[ConsumedMessage]:
        self._resume_due()
        self._collect(limit, timeout)
        # What is in the buffer now belongs to the present assignment, also where a
        # partition was lost and assigned again meanwhile.
        self._taken.clear()
        taken, self._buffer = self._buffer[:limit], self._buffer[limit:]
        self._at_work.update({m.topic_partition: m.offset for m in taken})
        return taken

    def serve(self) -> None:
        self._serve(0)

    def hold(self, timeout: float, until: Callable[[], bool]) -> None:
        consumer = self._connected()
        deadline = time.monotonic() + timeout
        while not until() and (left := deadline - time.monotonic()) > 0:
            # Each time, since partitions may have been assigned.
            consumer.pause(consumer.assignment())
            self._serve(min(left, 0.1))
        waiting = self._delayed.partitions
        consumer.resume(
            [
                partition
                for partition in consumer.assignment()
                if (partition.topic, partition.partition) not in waiting
            ]
        )

    def owns(self, message: ConsumedMessage) -> bool:
        return message.topic_partition in self._owned - self._taken

    def done(self, message: ConsumedMessage) -> None:
        if self.owns(message):
            self._done[message.topic_partition] = message.offset + 1
            if self._at_work.get(message.topic_partition) == message.offset:
                del self._at_work[message.topic_partition]

    def ends(self) -> dict[TopicPartition, int]:
        buffered = {message.topic_partition for message in self._buffer}
        unread = buffered | self._at_work.keys() | self._delayed.partitions
        return {at: end for at, end in self._at_end.items() if at not in unread}

    def commit(self) -> None:
        is_due = time.monotonic() - self._committed_at >= COMMIT_INTERVAL
        if self._done and is_due and not self._is_committing:
            self._is_committing = True
            self._committed_at = time.monotonic()
            try:
                self._connected().commit(offsets=_partitions(self._done))
            except KafkaException as error:
                self._is_committing = False
                self._report(error.args[0])

    def token(self, topic_partition: TopicPartition) -> str:
        asked = [DriverTopicPartition(*topic_partition)]
        try:
            (answer,) = self._connected().committed(asked, timeout=COORDINATOR_TIMEOUT)
        except KafkaException as error:
            raise self._errors.unavailable(
                "Cannot read the committed offset", error
            ) from error
        if answer.error is not None:
            raise KafkaUnavailable(answer.error.str())
        return str(answer.metadata)

    def lag(self) -> int:
        if self._consumer is None:
            return 0
        # Messages that are not due are no backlog.
        owned = self._owned - self._delayed.partitions
        total = 0
        try:
            for at in self._consumer.position(_partitions(dict.fromkeys(owned, 0))):
                end = self._at_end.get((at.topic, at.partition), OFFSET_INVALID)
                position = max(at.offset, end)
                low, high = self._consumer.get_watermark_offsets(at, cached=True)
                # Where the group goes on is known with the first message.
                if position != OFFSET_INVALID:
                    total += max(0, high - max(position, low))
        except KafkaException as error:
            logger.debug("Cannot compute the lag: %s", error)
        return total

    def group_metadata(self) -> Any:
        """
        Return the metadata that fences a transaction by this member's generation.

        Raises:
            KafkaUnavailable: it is not a member any more. Its metadata would name
                no member then, and the broker would not fence the transaction.
        """
        consumer = self._connected()
        metadata = consumer.consumer_group_metadata()
        if not self._member_id or consumer.memberid() != self._member_id:
            raise KafkaUnavailable("This consumer is no longer a member of its group.")
        return metadata

    def close(self) -> None:
        if (consumer := self._consumer) is not None:
            self._commit_now(consumer, self._done)
            self._leave(consumer)
            self._consumer = None
            consumer.close()

    def _leave(self, consumer: Consumer) -> None:
        """
        Give the partitions up before the client closes.

        librdkafka aborts the process now and then when it closes in the middle of a
        rebalance (its issue 4792).
        """
        end = time.monotonic() + LEAVE_TIMEOUT
        try:
            consumer.unsubscribe()
            while consumer.assignment() and time.monotonic() < end:
                consumer.poll(0.05)
        except KafkaException as error:
            self._report(error.args[0])

    def _connected(self) -> Consumer:
        if self._consumer is None:
            logger.debug("Consuming with %s", redacted(self._config))
            self._consumer = make(
                Consumer,
                {
                    **self._config,
                    **self._errors.callbacks,
                    "on_commit": self._on_commit,
                },
            )
            self._consumer.subscribe(
                self._topics,
                on_assign=self._on_assign,
                on_revoke=self._on_revoke,
                on_lost=self._on_lost,
            )
        return self._consumer

    def _resume_due(self) -> None:
        """Return messages that are due now; let their partitions go on."""
        if due := self._delayed.take_due():
            self._buffer += due
            ready = {m.topic_partition for m in due} - self._delayed.partitions
            self._connected().resume([DriverTopicPartition(*at) for at in ready])

    def _collect(self, limit: int, timeout: float) -> None:
        # Poll once with a full buffer too: the group takes partitions from a member
        # that does not poll.
        while self._serve(0 if self._buffer else timeout):
            if len(self._buffer) >= limit:
                return
            timeout = 0

    def _serve(self, timeout: float) -> bool:
        """Poll once; return whether a message or an event arrived."""
        try:
            message = self._connected().poll(timeout)
        except KafkaUnavailable as error:
            logger.warning("Consumer unavailable, retrying: %s", error)
            return False
        except KafkaException as error:
            self._report(error.args[0])
            return False
        if message is not None:
            self._take(message)
        else:
            self._errors.probe(self._connected(), self._topics[0])
        return message is not None

    def _take(self, message: Message) -> None:
        topic_partition = (message.topic() or "", message.partition() or 0)
        if (error := message.error()) is None:
            if self._errors.is_failing:
                self._errors.recovered()
            self._at_end.pop(topic_partition, None)
            received = consumed(message)
            if self._delayed.keep(received):
                self._connected().pause([DriverTopicPartition(*topic_partition)])
            else:
                self._buffer.append(received)
        elif error.code() == DriverError._PARTITION_EOF:
            self._at_end[topic_partition] = message.offset() or 0
        elif (end := end_of_reading(error, topic_partition)) is not None:
            raise end
        else:
            self._report(error)

    # librdkafka's callbacks, served by poll() and close() on the same thread.

    def _on_assign(
        self, consumer: Consumer, partitions: list[DriverTopicPartition]
    ) -> None:
        if self._consumer is None:
            # close() is running: the client does the rest, and calls to it may hang.
            return
        assigned = [(p.topic, p.partition) for p in partitions]
        starts = self._start_offsets(assigned) if assigned else {}
        for partition, topic_partition in zip(partitions, assigned, strict=True):
            if topic_partition in starts:
                partition.offset = starts[topic_partition]
        consumer.incremental_assign(partitions)
        # A restart continues here, also when no message has come until then.
        self._commit_now(consumer, starts)
        self._owned.update(assigned)
        self._member_id = consumer.memberid() or ""
        self.is_member, self._joined_at = True, time.monotonic()
        self._on_change()

    def _on_revoke(
        self, consumer: Consumer, partitions: list[DriverTopicPartition]
    ) -> None:
        mine = {(p.topic, p.partition) for p in partitions} & self._done.keys()
        self._commit_now(consumer, {at: self._done[at] for at in mine})
        self._give_up(consumer, partitions)

    def _on_lost(
        self, consumer: Consumer, partitions: list[DriverTopicPartition]
    ) -> None:
        self.is_member = False
        self._give_up(consumer, partitions)

    def _give_up(
        self, consumer: Consumer, partitions: list[DriverTopicPartition]
    ) -> None:
        gone = {(p.topic, p.partition) for p in partitions}
        self._owned -= gone
        self._taken |= gone
        self._buffer = [m for m in self._buffer if m.topic_partition not in gone]
        for topic_partition in gone:
            for known in (self._done, self._at_end, self._at_work):
                known.pop(topic_partition, None)
            self._delayed.drop(topic_partition)
        if self._consumer is not None:
            # They would still be paused when they come back.
            consumer.resume(partitions)
        consumer.incremental_unassign(partitions)
        self._on_change()

    def _on_commit(
        self, error: DriverError | None, partitions: list[DriverTopicPartition]
    ) -> None:
        self._is_committing = False
        for partition in partitions:
            topic_partition = (partition.topic, partition.partition)
            if refusal := error or partition.error:
                self._report(refusal)
            elif self._done.get(topic_partition) == partition.offset:
                del self._done[topic_partition]

    def _commit_now(
        self, consumer: Consumer, offsets: Mapping[TopicPartition, int]
    ) -> None:
        numbers = {at: offset for at, offset in offsets.items() if offset >= 0}
        end = time.monotonic() + COORDINATOR_TIMEOUT
        for at in offsets.keys() - numbers.keys():
            place, left = DriverTopicPartition(*at), end - time.monotonic()
            try:
                numbers[at], _ = first_and_end(consumer, place, timeout=left)
            except KafkaException as error:
                self._report(error.args[0])
        if numbers:
            try:
                consumer.commit(offsets=_partitions(numbers), asynchronous=False)
            except KafkaException as error:
                # The messages arrive again, as repeats.
                self._report(error.args[0])

    def _report(self, error: DriverError) -> None:
        if error.code() in _ROUTINE:
            logger.debug("Commit refused after a rebalance: %s", error.name())
        else:
            self._errors.note(error)


def _partitions(offsets: Mapping[TopicPartition, int]) -> list[DriverTopicPartition]:
    return [DriverTopicPartition(*at, offset) for at, offset in offsets.items()]
