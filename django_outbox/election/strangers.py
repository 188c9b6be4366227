"""
Recognizes heartbeats of another outbox that uses the names of this one.

Two outboxes in one leader group have one leader, and the other outbox is never
harvested; in two groups that share a topic they corrupt each other's ledger. So a
process that hears another outbox does not lead. Of two leaders that hear each
other, the one that came later ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ..exceptions import WrongOutbox
from ..message.record import Identity
from ..settings.options import IDENTITY_DIGITS
from .ports import Heartbeat

logger = logging.getLogger(__name__)


class Strangers:
    """
    Checks heartbeats for one process.

    Args:
        identity: of the outbox that it harvests; None while it is unknown.
        topic: the leader topic, for people.
        group: the leader group, for people.
        margin: seconds by which it must have owned the partition for longer than
            another outbox's leader, so that the other one has to end.
    """

    def __init__(
        self,
        identity: Callable[[], Identity | None],
        *,
        topic: str,
        group: str,
        margin: float,
    ) -> None:
        self._identity = identity
        self._names = f"topic {topic!r}, group {group!r}"
        self._margin = margin
        self._warned: set[str] = set()

    def check(self, heartbeat: Heartbeat, *, age: float | None = None) -> None:
        """
        Check a heartbeat that was written just now.

        Args:
            age: for how many seconds this process has owned the partition; None: it
                does not.

        Raises:
            WrongOutbox: it is of another outbox, or of a copy; this process must end.
        """
        own = self._identity()
        if own is None or not heartbeat.outbox:
            return
        if heartbeat.outbox != own.outbox:
            problem = (
                f"outbox {_short(heartbeat.outbox)} uses the same names as this one, "
                f"{_short(own.outbox)} ({self._names}). Set both to names that no "
                "other outbox uses."
            )
        elif heartbeat.system != own.system:
            problem = (
                f"outbox {_short(own.outbox)} has a leader in the database "
                f"{heartbeat.system}, and this process harvests {own.system}: one is a "
                f"copy of the other ({self._names}). Run `manage.py outbox identity "
                "--new` on the copy, and give it other names where both are set."
            )
        else:
            return
        if age is not None and age - heartbeat.age > self._margin:
            self._warn_once(heartbeat, problem)
            return
        raise WrongOutbox(f"LEADER_TOPIC and LEADER_GROUP: {problem}")

    def _warn_once(self, heartbeat: Heartbeat, problem: str) -> None:
        if heartbeat.nonce not in self._warned:
            # Forged nonces must not fill the memory.
            self._warned = {heartbeat.nonce}
            logger.warning(
                "This process keeps leading, since it was first; the other one has to"
                " end: %s",
                problem,
                extra={"action": "elect"},
            )


def _short(outbox: str) -> str:
    return outbox.replace("-", "")[:IDENTITY_DIGITS]
