"""
Whether a heartbeat tells of another outbox under the names of this one.

Two outboxes in one leader group have one leader, and the other outbox is never
harvested; in two groups that share a topic they spoil each other's ledger. So a
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
    Looks at heartbeats for one process.

    Args:
        identity: which outbox it harvests; None while nobody knows.
        topic: the leader topic, for people.
        group: the leader group, for people.
        margin: seconds by which it must have owned the partition for longer than
            another outbox's leader, for the other one to have to go.
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
        Look at a heartbeat that was written just now.

        Args:
            age: for how many seconds this process has owned the partition; None: it
                does not.

        Raises:
            WrongOutbox: it is another outbox's, or a copy's; this process must go.
        """
        here = self._identity()
        if here is None or not heartbeat.outbox:
            return
        if heartbeat.outbox != here.outbox:
            problem = (
                f"outbox {_short(heartbeat.outbox)} leads under the names of this one, "
                f"{_short(here.outbox)} ({self._names}). Set both to names that no "
                "other outbox has."
            )
        elif heartbeat.system != here.system:
            problem = (
                f"outbox {_short(here.outbox)} is led in the database "
                f"{heartbeat.system}, and is harvested here from a copy of it, "
                f"{here.system} ({self._names}). Run `manage.py outbox identity --new` "
                "on whichever is the copy, and set both for it where they are set."
            )
        else:
            return
        if age is not None and age - heartbeat.age > self._margin:
            self._warn_once(heartbeat, problem)
            return
        raise WrongOutbox(f"LEADER_TOPIC and LEADER_GROUP: {problem}")

    def _warn_once(self, heartbeat: Heartbeat, problem: str) -> None:
        if heartbeat.nonce not in self._warned:
            # Nonces that somebody makes up must not fill the memory.
            self._warned = {heartbeat.nonce}
            logger.warning(
                "This process leads on, since it was first; the other one has to end: "
                "%s",
                problem,
                extra={"action": "elect"},
            )


def _short(outbox: str) -> str:
    return outbox.replace("-", "")[:IDENTITY_DIGITS]
