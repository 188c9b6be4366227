"""
One line of a harvester: rows go from the table to Kafka.

A line is a dispatcher, and two fibers that do what it asks of the table: one
claims or reads rows, one settles, each over its own connection. With NOTIFY one
fiber more, of the first line, hears of commits. MP/R has one line, all on one
thread. So has the ledger relay, and one more for each cluster whose records it
may have to take over, so that none of them waits for another; its dispatcher
waits for transactions, so its fibers are on a thread of their own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ..message.record import Settlement
from ..relay.fibers import Fibers, this
from ..relay.meter import Counters
from ..relay.ports import Term
from ..relay.settler import Settler
from ..relay.takeovers import TakeoverChange, Takeovers
from ..relay.work_queue import Post


class Closable(Protocol):
    """Whatever holds a connection."""

    def close(self) -> None:
        """Let it go; the next use would connect anew."""


class Marking(Protocol):
    """MP/R's `Marker`, or the ledger relay's `Finder`."""

    def carry_out(self, claim: Any) -> None:
        """Do one round trip to the table; the outcome goes into the claim."""


class Dispatching(Protocol):
    """MP/R's `Dispatcher`, or the ledger relay's: see `relay/work_queue.py`."""

    takeovers: Takeovers

    @property
    def relay(self) -> Counters:
        """What it counts."""

    def begin_drain(self, term: Term) -> None:
        """Stop producing in this term."""

    def wait_drained(self, timeout: float) -> bool:
        """Wait until all is settled that was in flight; False: it is not."""

    def claimed(self, claim: Any) -> None:
        """Take back a claim."""

    def answer(self, settlement: Settlement) -> None:
        """Take back a settlement that the table now holds."""

    def wake(self) -> None:
        """End a rest: something changed."""

    def nudge(self) -> None:
        """Look at the table at once, or once more: rows were committed just now."""

    def step(self) -> float:
        """Do one round; return for how many seconds there is nothing to do."""

    def close(self) -> None:
        """Drop the client; the last call."""


class Listening(Protocol):
    """Hears of commits, where writers notify."""

    def run(self, hear: Callable[[], None]) -> None:
        """Listen until the present fiber ends, whatever fails; call `hear` in it."""


class RelayWorker:
    """
    The bodies of the threads of one line.

    Args:
        make_dispatcher: given what takes claims and settlements to the fibers.
        tables: the marker's and the settler's, closed at the end.
        is_apart: whether the fibers have a thread of their own.
        name: tells the threads of several lines apart.
    """

    def __init__(
        self,
        make_dispatcher: Callable[[Post[Any]], Dispatching],
        *,
        marker: Marking,
        settler: Settler,
        tables: Sequence[Closable],
        is_apart: bool = False,
        name: str = "",
    ) -> None:
        self.name = name
        self._marker = marker
        self._settler = settler
        self._tables = tables
        self._fibers = Fibers()
        self._asked = Fibers() if is_apart else self._fibers
        self.dispatcher = make_dispatcher(
            Post(
                claim=self._asked.serve(self._mark),
                submit=self._asked.serve(self._settle),
                wake=self._fibers.wake,
            )
        )

    def bodies(
        self, is_over: threading.Event, tell: Callable[[TakeoverChange], object]
    ) -> dict[str, Callable[[], None]]:
        """
        Name the threads and what each of them runs until `is_over`, then `wake()`.

        Args:
            tell: told of takeovers, on the thread "dispatch".
        """
        bodies = {f"dispatch{self.name}": lambda: self._dispatch(is_over, tell)}
        if self._asked is not self._fibers:
            bodies[f"table{self.name}"] = lambda: self._ask(is_over)
        return bodies

    def listen(self, listener: Listening, hear: Callable[[], None]) -> None:
        """
        Have one fiber more hear of commits; called before the threads start.

        Args:
            hear: called in that fiber when something was committed.
        """
        self._asked.serve(listener.run)(hear)

    def wake(self) -> None:
        """Let its threads see that it is over."""
        self._fibers.wake()
        self._asked.wake()

    def _dispatch(
        self, is_over: threading.Event, tell: Callable[[TakeoverChange], object]
    ) -> None:
        dispatcher = self.dispatcher
        try:
            while not is_over.is_set():
                idle = dispatcher.step()
                for news in dispatcher.takeovers.news():
                    tell(news)
                self._fibers.run(idle)
        finally:
            self._end(self._fibers)
            dispatcher.close()

    def _ask(self, is_over: threading.Event) -> None:
        try:
            while not is_over.is_set():
                self._asked.run()
        finally:
            self._end(self._asked)

    def _end(self, fibers: Fibers) -> None:
        fibers.close()
        if fibers is self._asked:
            for table in self._tables:
                table.close()

    # In the fibers.

    def _mark(self, claim: Any) -> None:
        self._marker.carry_out(claim)
        self.dispatcher.claimed(claim)

    def _settle(self, settlement: Settlement) -> None:
        while (retry_at := self._settler.settle(settlement)) is not None:
            this().sleep_until(retry_at)
        self.dispatcher.answer(settlement)
