"""
Lists the dead letters of a topic, and sends chosen ones to their topic again.

A message that is sent again has its key, value, headers and message id: groups that
have processed it skip it, and the group whose handler failed has not. The dead letter
stays in its topic, since Kafka deletes no single messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from ..exceptions import ConsumingError
from ..message.headers import MESSAGE_ID, Headers
from ..message.incoming import ConsumedMessage, OutgoingMessage
from ..settings.options import LEDGER_SUFFIX, OutboxSettings
from ..wording import number_in
from .dead_letters import PREFIX

Fetch = Callable[[str, int, int], ConsumedMessage | None]
"""Returns the message of a topic at a partition and an offset, while it is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A message of a dead letter topic."""

    message: ConsumedMessage

    @property
    def position(self) -> str:
        """Where it is in its topic: `partition/offset`."""
        return f"{self.message.partition}/{self.message.offset}"

    @property
    def topic(self) -> str:
        """The topic of the message that failed; empty: it does not say."""
        return self._why("topic")

    @property
    def is_shortened(self) -> bool:
        """Whether it is a smaller version, without a part of its message."""
        left_out = ("value-sha256", "headers-count", "key-sha256")
        return any(self._why(name) for name in left_out)

    def report(self) -> dict[str, Any]:
        """Describe it, ready for JSON, without key, value and headers."""
        sent_at = self.message.timestamp
        return {
            "position": self.position,
            "time": sent_at.isoformat() if sent_at else None,
            "message_id": self.message.message_id,
            "topic": self.topic,
            "at": f"{self._why('partition')}/{self._why('offset')}",
            "group": self._why("group"),
            "attempts": _number(self._why("attempts")),
            "error": self._why("error"),
            "reason": self._why("reason"),
            "is_shortened": self.is_shortened,
        }

    def original(self, fetch: Fetch, *, to: str) -> OutgoingMessage:
        """
        Return its message, addressed to a topic again.

        Raises:
            ConsumingError: it was shortened, and its message is not in the topic any
                more.
        """
        message = self._whole(fetch) if self.is_shortened else self.message
        headers: Headers = [
            (name, value)
            for name, value in message.headers
            if not name.startswith(PREFIX)
        ]
        if message.message_id is None and self.message.message_id is not None:
            # The position of the message, by which those know it who have handled it.
            headers.append((MESSAGE_ID, self.message.message_id))
        return OutgoingMessage(to, message.key, message.value, headers)

    def _whole(self, fetch: Fetch) -> ConsumedMessage:
        """Return the message that failed, from its own topic."""
        partition, offset = (
            _number(self._why("partition")),
            _number(self._why("offset")),
        )
        found = fetch(self.topic, partition, offset) if self.topic else None
        if found is None or not self._is_of(found):
            raise ConsumingError(
                f"The dead letter {self.position} was shortened, and its message is "
                f"no longer at {self.topic}/{partition}, offset {offset}."
            )
        return found

    def _is_of(self, message: ConsumedMessage) -> bool:
        """Whether this is the message: the topic may have been created again."""
        digest = self._why("value-sha256")
        if digest and digest != sha256(message.value or b"").hexdigest():
            return False
        return self.message.message_id in (message.message_id, message.identity)

    def _why(self, name: str) -> str:
        return self.message.header(PREFIX + name) or ""


def choose(
    positions: Sequence[str], fetch: Callable[[int, int], ConsumedMessage | None]
) -> list[DeadLetter]:
    """
    Return the dead letters at these positions, each once.

    Args:
        fetch: returns the message at a partition and an offset of their topic.

    Raises:
        ConsumingError: there is none at one of them.
    """
    found: dict[str, ConsumedMessage | None] = {
        position: fetch(*map(int, position.split("/"))) for position in positions
    }
    if missing := [position for position, message in found.items() if message is None]:
        raise ConsumingError(f"There is no dead letter at {', '.join(missing)}.")
    return [DeadLetter(message=message) for message in found.values() if message]


def destination(letter: DeadLetter, options: OutboxSettings, *, to: str = "") -> str:
    """
    Return the topic to which a dead letter goes: that of its message, or `to`.

    Anyone who may write to the dead letter topic may name any topic in a header. So
    the header counts only if the dead letter topic is the one of that topic.

    Raises:
        ConsumingError: `to` is needed, or the topic is reserved.
    """
    expected = letter.message.topic.removesuffix(options.DEAD_LETTER_SUFFIX)
    topic = to or letter.topic
    if not to and (not topic or topic != expected):
        raise ConsumingError(
            f"The dead letter {letter.position} in {letter.message.topic} is of the "
            f"topic {letter.topic or '(none)'!r}, which has another dead letter topic "
            "by default: check it, and name the topic with --to."
        )
    is_ours = topic in options.reserved_topics or topic.endswith(LEDGER_SUFFIX)
    if is_ours or topic.startswith("__"):
        raise ConsumingError(f"The topic {topic!r} is reserved.")
    return topic


def _number(text: str) -> int:
    return number_in(text, 18) or 0
