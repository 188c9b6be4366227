"""The signals of a harvester that leads, for receivers and singleton tasks."""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType
from typing import Self

from django.dispatch import Signal

from .. import signals
from ..election.term import new_id
from ..events import (
    Event,
    LeaderAcquired,
    LeaderFenced,
    LeaderRefreshed,
    LeaderRevoked,
)
from ..harvester.harvester import Harvester


def announce(event: Event) -> None:
    """
    Send the signal of an event to its receivers, on this thread.

    Raises:
        Exception: the first error of a receiver, after all receivers have run.
    """
    signal: Signal = getattr(signals, event.kind)
    for _receiver, answer in signal.send_robust(sender=Harvester, event=event):
        if isinstance(answer, Exception):
            raise answer


class Leader:
    """A harvester that was elected; as a context manager, until the block's end."""

    def __init__(self, name: str = "testing") -> None:
        self.leader_id = new_id()
        """UUID as text."""
        self.is_leading = True
        self._name = name
        try:
            announce(LeaderAcquired(name=name, leader_id=self.leader_id))
        except BaseException:
            # Those who have begun to lead would go on in other tests.
            with suppress(Exception):
                self.revoke()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.revoke()

    def refresh(self, reason: str = "the test takes a new leader id") -> None:
        """Continue under a new leader id; send leader_refreshed."""
        previous, self.leader_id = self.leader_id, new_id()
        announce(
            LeaderRefreshed(
                name=self._name,
                leader_id=self.leader_id,
                previous_leader_id=previous,
                reason=reason,
            )
        )

    def revoke(self) -> None:
        """End the leadership as a shutdown does; without effect after its end."""
        if self._end():
            announce(LeaderRevoked(name=self._name, leader_id=self.leader_id))

    def fence(self, reason: str = "the test ends the lease") -> None:
        """End the leadership as a lost lease does; without effect after its end."""
        if self._end():
            announce(
                LeaderFenced(name=self._name, leader_id=self.leader_id, reason=reason)
            )

    def _end(self) -> bool:
        was_leading, self.is_leading = self.is_leading, False
        return was_leading


def lead(name: str = "testing") -> Leader:
    """
    Let a harvester of this name lead: send leader_acquired.

        with lead() as leader:
            leader.fence()

    Raises:
        Exception: what a receiver raises; all other receivers have run.
    """
    return Leader(name)
