"""
What comes to the thread "dispatch" from elsewhere, and what goes out from it.

Both dispatchers build on it, MP/R's and the ledger relay's. Claims and settlements
come back in the order in which they were carried out; the elector asks for a drain
and waits.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from ..message.record import Settlement, Sweep
from .availability import Availability
from .polling import PollSchedule
from .ports import Leadership, Term
from .settings import RelaySettings
from .takeovers import Takeovers
from .trust import Trust

MAX_OUTSTANDING: Final = 2
"""Settlements handed over and not answered: one at work, one ready."""

logger = logging.getLogger(__name__)


class Asked(Protocol):
    """What either dispatcher asks of the table."""

    limit: int
    sweep: Sweep | None


ClaimT = TypeVar("ClaimT", bound=Asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class Post(Generic[ClaimT]):
    """What a dispatcher calls to have something done; none of it may block."""

    claim: Callable[[ClaimT], None]
    """Takes a claim to the table; `claimed` brings it back."""
    submit: Callable[[Settlement], None]
    """Takes a settlement to the table; `answer` brings it back."""
    wake: Callable[[], None]
    """Ends the dispatcher's rest; called on any thread."""


class Handoff(ABC, Generic[ClaimT]):
    """
    The side of one dispatching thread.

    Args:
        leadership: asked and told by this thread.
        outages: how both sides see the table.
        clock: boot-time seconds.
    """

    def __init__(
        self,
        settings: RelaySettings,
        *,
        leadership: Leadership,
        post: Post[ClaimT],
        outages: Sequence[Availability],
        clock: Callable[[], float],
    ) -> None:
        self._clock = clock
        self._is_trusted = Trust(leadership, clock)
        self._leadership = leadership
        self._post = post
        self._outages = outages
        self._deadline = settings.database_deadline
        self._pace = PollSchedule(
            busy_interval=settings.busy_interval, idle_interval=settings.idle_interval
        )
        self._is_claiming = False
        self._is_nudged = False
        """A claim of what is next has to be asked, whatever the pace says."""
        self._claimed: deque[ClaimT] = deque()
        self._outstanding = 0
        self._answers: deque[Settlement] = deque()
        self._rests: deque[Settlement] = deque()
        """What settlements have left in the table, to be submitted again."""
        self._draining: float | None = None
        self._drained = threading.Event()
        self._stood_down_from = ""
        """The leader id whose work was given up last."""
        self.takeovers = Takeovers(here=settings.here, quiet=settings.quiet)
        """What it relays of other clusters."""

    # Called on other threads.

    def begin_drain(self, term: Term) -> None:
        """
        Stop producing in this term, whatever its id; `is_drained` follows.

        Called on the elector's thread, inside the barrier.
        """
        self._draining = term.acquired_at
        self._drained.clear()
        self.wake()

    def wait_drained(self, timeout: float) -> bool:
        """Wait for that; False when something is in flight after `timeout` seconds."""
        return self._drained.wait(timeout)

    @property
    def is_drained(self) -> bool:
        """Whether all that was in flight when the drain began is settled."""
        return self._drained.is_set()

    def claimed(self, claim: ClaimT) -> None:
        """Take back a claim that was carried out, or could not be."""
        self._claimed.append(claim)
        self.wake()

    def answer(self, settlement: Settlement) -> None:
        """Take back a settlement that the table now holds."""
        self._answers.append(settlement)
        self.wake()

    def wake(self) -> None:
        """End a rest: something changed."""
        self._post.wake()

    def nudge(self) -> None:
        """Look at the table at once, or once more: rows were committed just now."""
        # A process that does not lead looks as soon as it does.
        if self._leadership.term is not None:
            self._is_nudged = True
            self.wake()

    # Called on the thread "dispatch".

    @property
    def _is_asking(self) -> bool:
        """Whether something that was asked of the table has not come back."""
        return self._is_claiming or self._outstanding > 0

    @property
    def _look_at(self) -> float:
        """When to look for what is next: by the pace, or at once after a nudge."""
        return 0.0 if self._is_nudged else self._pace.look_at

    def _ask(self, claim: ClaimT) -> None:
        self._is_claiming = True
        if claim.limit and claim.sweep is None:
            # Before the look: it may miss what is committed after it has begun.
            self._is_nudged = False
        self._post.claim(claim)

    def _take_answers(self, now: float) -> None:
        """Take settlements that have come back, and submit a rest that is due."""
        while self._answers:
            settlement = self._answers.popleft()
            if not settlement.is_apart:
                # A row that stays in the table does not delay later settlements.
                self._outstanding -= 1
            settlement.divide()
            self._take_answer(settlement, now)
            if settlement.rest is not None:
                self._rests.append(settlement.rest)
        if self._rests and self._rests[0].retry_at <= now:
            self._post.submit(self._rests.popleft())

    @abstractmethod
    def _take_answer(self, settlement: Settlement, now: float) -> None:
        """Take one settlement that has come back."""

    def _submit(self, settlement: Settlement) -> None:
        self._outstanding += 1
        self._post.submit(settlement)

    def _unused(self, term: Term, now: float) -> Term | None:
        """
        Return the term under a leader id that this dispatcher never stood down from.

        The elector may extend a lease a moment after it has ended: then this thread has
        forgotten what it did under the id, and takes a new one. None: the term ended.
        """
        if term.leader_id != self._stood_down_from:
            return term
        reason = "the lease had ended before it was extended"
        return self._leadership.refresh(term.leader_id, reason=reason, now=now)

    def _tell_drained(self) -> None:
        if self._draining is not None:
            self._drained.set()

    def _resign_when_overdue(self, term: Term, now: float) -> None:
        lost = max(outage.lasts(now) for outage in self._outages)
        # What was lost before this term, nobody has tried again since.
        lost = min(lost, now - term.acquired_at)
        if lost >= self._deadline:
            reason = f"no database for {lost:.1f} s"
            self._leadership.resign(term.leader_id, reason=reason)


def report_sweep(found: int) -> None:
    """Log that a sweep has found rows which nothing else had shown."""
    if found:
        logger.info(
            "A sweep found %d rows that had come in behind",
            found,
            extra={"action": "swept", "records": found},
        )
