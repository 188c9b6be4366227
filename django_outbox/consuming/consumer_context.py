"""What both workers share: the group, its membership, and how to wait and retry."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event as Flag

from ..message.incoming import ConsumedMessage, OutgoingMessage
from ..message.retry import RetryPolicy
from ..wording import first_line
from .connections import close_connections
from .consumer_progress import Progress
from .dead_letters import dead_letters
from .handlers import Group
from .ports import Membership

logger = logging.getLogger(__name__)


def log_outage(error: Exception, tries: int) -> None:
    """Warn of the first failure of an outage; the others are for debugging."""
    logger.log(
        logging.WARNING if tries == 1 else logging.DEBUG,
        "Database or broker unavailable, retrying: %s",
        first_line(error),
        extra={"action": "consumer_waits"},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerContext:
    """One process's part in one consumer group."""

    group: Group
    membership: Membership
    retry: RetryPolicy
    suffix: str
    """Of the names of dead letter topics."""
    progress: Progress
    stop: Flag
    report: Callable[[], object]
    """Called between two messages, since a round may take minutes."""

    def should_continue(self, message: ConsumedMessage) -> bool:
        """Whether the message is still ours and the process is not stopping."""
        return self.membership.owns(message) and not self.stop.is_set()

    def wait(self, tries: int) -> None:
        """Stay in the group until the next try is due or the process stops."""
        self.membership.hold(self.retry.delay(tries), self.stop.is_set)

    def wait_for_recovery(self, error: Exception, outages: int) -> None:
        """Wait for a database or broker, warn once; then close all connections."""
        log_outage(error, outages)
        self.wait(outages)
        close_connections()

    def is_spent(self, message: ConsumedMessage, attempts: int) -> bool:
        """Whether this failed attempt was the last."""
        own = self.group.of(message.topic).attempts
        return self.retry.is_spent(attempts) if own is None else attempts >= own

    def set_aside(
        self,
        message: ConsumedMessage,
        error: BaseException,
        attempts: int,
        *,
        topic: str,
    ) -> None:
        """Count a message that is in its dead letter topic; log one that is retried."""
        if not self.group.is_retry(topic, self.suffix):
            self.progress.set_aside(message, error, attempts)
            return
        logger.info(
            "Message %s/%d at offset %d (message id %s) waits in %s for its retry",
            *(message.topic, message.partition, message.offset, message.message_id),
            topic,
            extra={"action": "message_waits"},
        )

    def cut(self, message: ConsumedMessage, error: Exception) -> None:
        """Log that a dead letter was refused and a smaller one follows."""
        logger.warning(
            "The dead letter of message %s/%d at offset %d was refused: %s. Sending a "
            "smaller one, whose headers give sizes and digests of what it leaves out",
            *(message.topic, message.partition, message.offset),
            error,
            extra={"action": "dead_letter_cut"},
        )

    def refuse(self, message: ConsumedMessage, error: Exception, tries: int) -> None:
        """Log that the topic accepts no version of a dead letter; wait."""
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
        """Return the versions of the dead letter, the whole one first."""
        return dead_letters(
            message,
            topic=self.group.dead_letter_topic(message.topic, self.suffix),
            last_topic=self.group.last_dead_letter_topic(message.topic, self.suffix),
            group=self.group.name,
            error=error,
            attempts=attempts,
            is_retry=self.group.is_retry(message.topic, self.suffix),
        )
