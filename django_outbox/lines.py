"""
One line of a harvester: on two threads, rows go from the table to Kafka.

MP/R has one line. So has the ledger relay, and one more for each cluster whose
records it may have to take over, so that none of them waits for another. All
share the thread that settles: `machinery.py` brings the answer to the line
that has asked.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, Protocol

from .records import Settlement
from .relay.ports import Term
from .relay.takeovers import News, Takeovers


class Closable(Protocol):
    """Whatever holds a connection."""

    def close(self) -> None:
        """Let it go; the next use would connect anew."""


class Marking(Protocol):
    """MP/R's `Marker`, or the ledger relay's `Finder`."""

    def carry_out(self, claim: Any) -> None:
        """Do one round trip to the table; the outcome goes into the claim."""


class Dispatching(Protocol):
    """MP/R's `Dispatcher`, or the ledger relay's: see `relay/handoff.py`."""

    takeovers: Takeovers

    def begin_drain(self, term: Term) -> None:
        """Stop producing in this term."""

    def wait_drained(self, timeout: float) -> bool:
        """Wait until all is settled that was in flight; False: it is not."""

    def claimed(self, claim: Any) -> None:
        """Take back a claim."""

    def answer(self, settlement: Settlement) -> None:
        """Take back a settlement that the table now holds."""

    def wake(self) -> None:
        """End a wait: something changed."""

    def nudge(self) -> None:
        """Look at the table at once, or once more: rows were committed just now."""

    def rest(self, seconds: float) -> None:
        """Wait until something changes, for so many seconds at most."""

    def step(self) -> float:
        """Do one round; return for how many seconds there is nothing to do."""

    def close(self) -> None:
        """Drop the client; the last call."""


class Post:
    """
    Where a line's dispatcher puts what other threads are to do.

    Args:
        submit: takes a settlement, and who has asked, to the thread "settle".
    """

    def __init__(self, submit: Callable[[tuple[Post, Settlement]], None]) -> None:
        self.claims: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._submit = submit

    def claim(self, claim: Any) -> None:
        """Queue a claim for the line's thread "mark"."""
        self.claims.put(claim)

    def submit(self, settlement: Settlement) -> None:
        """Queue a settlement for the thread "settle"."""
        self._submit((self, settlement))


class Line:
    """
    The bodies of the two threads, "mark" and "dispatch".

    Args:
        marking: the marker's table, closed when its thread ends.
        name: tells the threads of several lines apart.
    """

    def __init__(
        self,
        post: Post,
        *,
        marker: Marking,
        dispatcher: Dispatching,
        marking: Closable,
        name: str = "",
    ) -> None:
        self.post = post
        self.dispatcher = dispatcher
        self.name = name
        self._marker = marker
        self._marking = marking

    def mark(self) -> None:
        """Carry claims to the table until the line is stopped."""
        try:
            while (claim := self.post.claims.get()) is not None:
                self._marker.carry_out(claim)
                self.dispatcher.claimed(claim)
        finally:
            self._marking.close()

    def dispatch(
        self, is_over: threading.Event, tell: Callable[[News], object]
    ) -> None:
        """Dispatch until it is over; tell of takeovers."""
        dispatcher = self.dispatcher
        try:
            while not is_over.is_set():
                idle = dispatcher.step()
                for news in dispatcher.takeovers.news():
                    tell(news)
                if idle:
                    dispatcher.rest(idle)
        finally:
            dispatcher.close()

    def stop(self) -> None:
        """End both threads; what `dispatch` has been given is set before."""
        self.dispatcher.wake()
        self.post.claims.put(None)
