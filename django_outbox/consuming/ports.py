"""
What the runner needs of Kafka; `kafka/` has it, tests have plain objects.

All is called on the runner's thread. Trouble with the cluster is a
`KafkaError`, and nothing else of the driver comes through.
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
    """A member of the consumer group, as handlers work under it."""

    def owns(self, message: ConsumedMessage) -> bool:
        """Whether its partition has been ours ever since it was polled."""

    def serve(self) -> None:
        """Serve the group once; what comes meanwhile is for the next `poll()`."""

    def hold(self, timeout: float, until: Callable[[], bool]) -> None:
        """Stay in the group without taking messages, until then at the latest."""


class Offsets(Protocol):
    """The offsets that the group commits in Kafka."""

    def done(self, message: ConsumedMessage) -> None:
        """Note that it is done: the next `commit()` goes past it."""

    def commit(self) -> None:
        """Send the offsets of messages that are done; do not wait."""

    def ends(self) -> Mapping[TopicPartition, int]:
        """Return where partitions end whose messages are all done."""


class CommittedTokens(Protocol):
    """The tokens that transactions leave with the group's offsets."""

    def token(self, topic_partition: TopicPartition) -> str:
        """
        Ask the group for the token of its committed offset, if that has one.

        Raises:
            KafkaError: it does not answer.
        """


class Assignment(Protocol):
    """The partitions of this member, and how far they have been read."""

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions that are ours."""

    @property
    def is_at_end(self) -> bool:
        """Whether every partition that is ours has been read to its end."""

    def lag(self) -> int:
        """Return about how many messages of our partitions are not read yet."""


class MessageSource(Membership, Offsets, Assignment, Protocol):
    """A member of the group from which messages are polled."""

    def poll(self, limit: int, timeout: float) -> list[ConsumedMessage]:
        """
        Return messages that have come, waiting up to `timeout` for the first.

        Serves the group: partitions may come and go meanwhile. Messages of one
        partition are in their order. While the cluster is away, there are none.
        """

    def close(self) -> None:
        """Commit what is done, and leave the group."""


class PartitionStates(Protocol):
    """What the cluster knows of partitions."""

    def look(
        self, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, PartitionState]:
        """
        Return the state of these partitions, of those that exist.

        Raises:
            KafkaError: the cluster does not answer; call it again.
        """


class DeadLetters(Protocol):
    """Where messages go that keep failing."""

    def send(self, message: OutgoingMessage) -> None:
        """
        Write it; return when it is safe.

        Raises:
            KafkaError: it may not be there.
        """

    def close(self) -> None:
        """Let the client go."""


class Transactions(Protocol):
    """A transactional producer that is fenced by the group's generation."""

    def send(
        self,
        messages: Sequence[OutgoingMessage],
        offsets: Mapping[TopicPartition, int],
        token: str,
    ) -> None:
        """
        Write letters and offsets in one transaction; return when it is committed.

        The token goes with the offsets: who finds it there knows the outcome.

        Raises:
            RecordPoisoned: a letter cannot be sent; nothing is.
            KafkaError: the outcome is unknown until `renew()` has ended it.
        """

    def renew(self) -> None:
        """
        Make another producer, which ends what the old one has left open.

        Raises:
            KafkaError: it did not work; call it again.
        """

    def close(self) -> None:
        """Let the client go."""
