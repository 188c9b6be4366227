"""
Recognizes heartbeats of another outbox that uses the names of this one.

Two outboxes in one leader group have one leader, and the other outbox is never
harvested; in two groups that share a topic they corrupt each other's ledger. So a
process that hears another outbox does not lead. Of two leaders that hear each
other, the one that came later ends.

The same outbox in another database is a copy, or it has moved and one of the two
processes has not read its identity since. Each reads it before it joins, and a leader
now and then. So a member that hears another database leaves, and a process that has
not joined waits. It ends when that has lasted so long that one must be a copy.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import inf
from typing import Final

from ..exceptions import WrongOutbox
from ..message.record import Identity
from ..settings.options import IDENTITY_DIGITS
from .ports import Heartbeat, JoinLater

logger = logging.getLogger(__name__)

MAY_HAVE_MOVED: Final = (
    "another process harvests this outbox in another database: one of the two may have"
    " to learn yet that the database has moved"
)


class Strangers:
    """
    Checks heartbeats for one process.

    Args:
        identity: of the outbox that it harvests; None while it is unknown.
        topic: the leader topic, for people.
        group: the leader group, for people.
        margin: seconds by which it must have owned the partition for longer than
            another outbox's leader, so that the other one has to end.
        session_timeout: seconds for which a leader that was heard may still lead.
        patience: seconds within which each leader learns that its database has moved.
        clock: monotonic time (CLOCK_BOOTTIME) in seconds.
    """

    def __init__(
        self,
        identity: Callable[[], Identity | None],
        *,
        topic: str,
        group: str,
        margin: float,
        session_timeout: float,
        patience: float,
        clock: Callable[[], float],
    ) -> None:
        self._identity = identity
        self._names = f"topic {topic!r}, group {group!r}"
        self._margin = margin
        self._session_timeout = session_timeout
        self._patience = patience
        self._clock = clock
        self._doubted_since = self._doubted_at = -inf
        self._warned: set[str] = set()

    @property
    def are_in_doubt(self) -> bool:
        """Whether this outbox may have a leader in another database."""
        return self._clock() - self._doubted_at <= self._session_timeout

    def check(
        self,
        heartbeat: Heartbeat,
        *,
        age: float | None = None,
        joined_for: float | None = None,
    ) -> None:
        """
        Check a heartbeat that was written just now.

        Args:
            age: for how many seconds this process has owned the partition; None: it
                does not.
            joined_for: for how many seconds it has been a member; None: it is none.

        Raises:
            WrongOutbox: it is of another outbox, or of a copy; this process must end.
            JoinLater: the database may have moved; a member must leave, and join
                when it has read its identity again.
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
        if heartbeat.outbox == own.outbox and self._may_have_moved(joined_for):
            raise JoinLater(MAY_HAVE_MOVED)
        raise WrongOutbox(f"LEADER_TOPIC and LEADER_GROUP: {problem}")

    def _may_have_moved(self, joined_for: float | None) -> bool:
        now = self._clock()
        if now - self._doubted_at > self._session_timeout + self._patience:
            self._doubted_since = now
        self._doubted_at = now
        if joined_for is not None and joined_for <= self._margin:
            # It has just read its identity. Two copies that start at once both lead.
            return False
        return now - self._doubted_since <= self._patience

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
