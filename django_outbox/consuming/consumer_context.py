"""What both workers are given: the group, its place in Kafka, and retry."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from threading import Event as Flag

from ..message.incoming import ConsumedMessage, OutgoingMessage
from .consumer_progress import Progress
from .consumer_retry import RetryPolicy
from .dead_letters import dead_letters
from .handlers import Group
from .ports import Membership

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerContext:
    """The work of one process in one group."""

    group: Group
    membership: Membership
    retry: RetryPolicy
    suffix: str
    """Of dead letter topics."""
    progress: Progress
    stop: Flag

    def goes_on_with(self, message: ConsumedMessage) -> bool:
        """Whether a message is still ours, and the process is not to end."""
        return self.membership.owns(message) and not self.stop.is_set()

    def wait(self, tries: int) -> None:
        """Stay in the group until the next try, or until the process is to end."""
        self.membership.hold(self.retry.delay(tries), self.stop.is_set)

    def wait_for_recovery(self, error: Exception, outages: int) -> None:
        """Say that something is away, when that is news, and wait."""
        logger.log(
            logging.WARNING if outages == 1 else logging.DEBUG,
            "Database or broker unavailable, retrying: %s",
            str(error).partition("\n")[0],
            extra={"action": "consumer_waits"},
        )
        self.wait(outages)

    def cut(self, message: ConsumedMessage, error: Exception) -> None:
        """Say that a dead letter was refused, and that a smaller one is sent."""
        logger.warning(
            "The dead letter of message %s/%d at offset %d was refused: %s. Sending a "
            "smaller one, whose headers give sizes and digests of what it leaves out",
            *(message.topic, message.partition, message.offset),
            error,
            extra={"action": "dead_letter_cut"},
        )

    def refuse(self, message: ConsumedMessage, error: Exception, tries: int) -> None:
        """Say that no dead letter is accepted until somebody helps; wait."""
        logger.error(
            "Cannot send the dead letter of message %s/%d at offset %d: %s. Check that "
            "its topic exists and that this consumer may write to it. All partitions "
            "of this process wait until then",
            *(message.topic, message.partition, message.offset),
            error,
            extra={"action": "dead_letter_refused"},
        )
        self.wait(tries)

    def dead_letters(
        self, message: ConsumedMessage, error: Exception, attempts: int
    ) -> tuple[OutgoingMessage, ...]:
        """Return what to write to the dead letter topic: whole, and ever smaller."""
        return dead_letters(
            message,
            topic=self.group.dead_letter_topic(message.topic, self.suffix),
            group=self.group.name,
            error=error,
            attempts=attempts,
        )
