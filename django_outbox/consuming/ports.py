"""
The ports through which consumers use Kafka.

Every method is called on the runner's thread. Errors of the cluster are raised
as `KafkaError`; no exception of the driver passes a port.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from ..message.incoming import (
    ConsumedMessage,
    OutgoingMessage,
    PartitionState,
    TopicPartition,
)


class Membership(Protocol):
    """Membership in the consumer group, while messages are processed."""

    def owns(self, message: ConsumedMessage) -> bool:
        """Whether we have owned its partition since it was polled."""

    def serve(self) -> None:
        """Serve the group once; keep arriving messages for the next `poll()`."""

    def hold(self, timeout: float, until: Callable[[], bool]) -> None:
        """
        Stay in the group without messages for `timeout` seconds.

        Returns earlier once `until()` is true.
        """


class Offsets(Protocol):
    """The offsets that the group commits in Kafka."""

    def done(self, message: ConsumedMessage) -> None:
        """Mark a message as done: the next `commit()` includes it."""

    def commit(self) -> None:
        """Send the offsets of messages that are done; do not wait."""

    def ends(self) -> Mapping[TopicPartition, int]:
        """Return the ends of partitions whose messages are all done."""


class CommittedTokens(Protocol):
    """The tokens that transactions leave with the group's offsets."""

    def token(self, topic_partition: TopicPartition) -> str:
        """
        Return the token of the committed offset; empty if it has none.

        Raises:
            KafkaError: the group coordinator does not answer.
        """


class Assignment(Protocol):
    """The partitions of this member, and how far they have been read."""

    @property
    def is_member(self) -> bool:
        """Whether the group has answered, and has not excluded us since."""

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions that we own."""

    @property
    def is_at_end(self) -> bool:
        """Whether every partition that we own has been read to its end."""

    def lag(self) -> int:
        """Estimate how many messages of our partitions are not read yet."""


class MessageSource(Membership, Offsets, Assignment, Protocol):
    """A member of the group from which messages are polled."""

    def poll(self, limit: int, timeout: float) -> list[ConsumedMessage]:
        """
        Return up to `limit` messages; wait up to `timeout` seconds for the first.

        Serves the group: partitions may be assigned or revoked during the call.
        Messages of one partition are in order. Returns none during an outage.
        """

    def close(self) -> None:
        """Commit the offsets of messages that are done; leave the group."""


class PartitionStates(Protocol):
    """The state of partitions in the cluster."""

    def look(
        self, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, PartitionState]:
        """
        Return the states of those of these partitions that exist.

        Raises:
            KafkaError: the cluster does not answer; call again.
        """


class DeadLetters(Protocol):
    """Sends messages that keep failing to their dead letter topics."""

    def send(self, message: OutgoingMessage) -> None:
        """
        Send a message; return when Kafka has acknowledged it.

        Raises:
            RecordPoisoned: the topic refuses it; it may accept a smaller one.
            KafkaError: it may not have arrived.
        """

    def rest(self) -> None:
        """Close a client that has had nothing to send for a while."""

    def close(self) -> None:
        """Close the client."""


class Transactions(Protocol):
    """A transactional producer that is fenced by the group's generation."""

    def send(
        self,
        messages: Sequence[OutgoingMessage],
        offsets: Mapping[TopicPartition, int],
        token: str,
    ) -> None:
        """
        Send messages and offsets in one transaction; return when it is committed.

        The token is stored with the offsets; finding it there proves the commit.

        Raises:
            RecordPoisoned: one message cannot be sent, so none was.
            KafkaError: the outcome is unknown until `renew()` returns.
        """

    def renew(self) -> None:
        """
        Replace the producer, which ends a transaction that is still open.

        Raises:
            KafkaError: it failed; call again.
        """

    def rest(self) -> None:
        """Close a client that has had nothing to send for a while."""

    def close(self) -> None:
        """Close the client."""
