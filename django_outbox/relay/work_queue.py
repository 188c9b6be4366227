"""
The queues between one dispatching thread and all others.

Requests for a page and settlements go to the threads that access the table; pages and
outcomes come back, each in the order of the requests. Other threads wake the
dispatcher, or ask it to drain and wait.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from .page_request import Page, PageRequest
from .ports import Term
from .settlement import Settled, Settlement

MAX_OUTSTANDING: Final = 2
"""Settlements handed over and not answered: one at work, one ready."""


class WorkQueue:
    """
    What comes to one dispatcher, and what goes out from it.

    Args:
        read: takes a request to the table; `put_page` brings the page.
        settle: takes a settlement to the table; `put_settled` brings the outcome.
        wake: ends the dispatcher's rest. None of the three may block.
    """

    def __init__(
        self,
        *,
        read: Callable[[PageRequest], None],
        settle: Callable[[Settlement], None],
        wake: Callable[[], None],
    ) -> None:
        self.wake = wake
        """Ends a rest: something changed. Called on any thread."""
        self.is_reading = False
        """Whether a page was requested that has not come back."""
        self.is_urgent = False
        """Whether the next page has to be requested, whatever the schedule says."""
        self._read = read
        self._settle = settle
        self._pages: deque[Page] = deque()
        self._outstanding = 0
        self._settled: deque[Settled] = deque()
        self._rests: deque[Settlement] = deque()
        """What settlements have left in the table, the first of them due first."""
        self._draining: float | None = None
        self._drained = threading.Event()

    # Called on other threads.

    def begin_drain(self, term: Term) -> None:
        """
        Stop producing in this term, whatever its id; see `wait_drained`.

        Called on the elector's thread, inside the barrier.
        """
        self._draining = term.acquired_at
        self._drained.clear()
        self.wake()

    def wait_drained(self, timeout: float) -> bool:
        """
        Wait for the end of the drain; False when `timeout` seconds were not enough.

        All that was in flight when it began is settled, or what is not settled is known
        to the next leader.
        """
        return self._drained.wait(timeout)

    def put_page(self, page: Page) -> None:
        """Bring the answer to a request."""
        self._pages.append(page)
        self.wake()

    def put_settled(self, settled: Settled) -> None:
        """Bring the outcome of a settlement that the table now holds."""
        self._settled.append(settled)
        self.wake()

    def read_now(self) -> None:
        """Read the table at once, or once more: rows were committed just now."""
        self.is_urgent = True
        self.wake()

    # Called on the thread "dispatch".

    @property
    def has_answers(self) -> bool:
        """Whether something has come back."""
        return bool(self._pages or self._settled)

    @property
    def has_room(self) -> bool:
        """Whether another settlement may be submitted."""
        return self._outstanding < MAX_OUTSTANDING

    @property
    def is_waiting(self) -> bool:
        """Whether something that went to the table has not come back."""
        return self.is_reading or self._outstanding > 0

    def read(self, request: PageRequest) -> None:
        """Request a page; one at a time."""
        self.is_reading = True
        if request.limit and request.sweep is None:
            # Before the table is read: it may miss what is committed after that.
            self.is_urgent = False
        self._read(request)

    def pages(self) -> Iterator[Page]:
        """Yield the pages that have come."""
        while self._pages:
            self.is_reading = False
            yield self._pages.popleft()

    def submit(self, settlement: Settlement) -> None:
        """Have a settlement carried out."""
        if not settlement.is_rest:
            # A row that stays in the table does not delay later settlements.
            self._outstanding += 1
        self._settle(settlement)

    def settled(self) -> Iterator[Settled]:
        """Yield the outcomes that have come."""
        while self._settled:
            settled = self._settled.popleft()
            if not settled.settlement.is_rest:
                self._outstanding -= 1
            yield settled

    def keep(self, rest: Settlement) -> None:
        """Keep what a settlement has left in the table."""
        self._rests.append(rest)

    def due_rest(self, now: float) -> Settlement | None:
        """Take out a rest that is due, to submit it again (monotonic seconds)."""
        if self._rests and self._rests[0].retry_at <= now:
            return self._rests.popleft()
        return None

    def is_draining(self, term: Term) -> bool:
        """Whether nothing more may be produced in this term."""
        return term.acquired_at == self._draining

    def tell_drained(self) -> None:
        """Let `wait_drained` return."""
        if self._draining is not None:
            self._drained.set()
