"""
One relay worker: moves rows from the table to Kafka, on one thread or two.

A worker is a dispatcher and two fibers that access the table for it: one marks
or reads rows, the other settles them, each over its own connection. MP/R has one
worker, with everything on one thread. The ledger relay has one worker for each
cluster whose records this process may have to relay, so that none of them waits
for another; its dispatcher blocks on transactions, so its fibers have a thread
of their own. With NOTIFY, one more fiber of the first worker listens for commits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from ..relay.dispatcher import Dispatcher
from ..relay.fibers import Fibers, this
from ..relay.meter import Counters
from ..relay.page_reader import PageReader
from ..relay.page_request import PageRequest
from ..relay.settlement import Settlement
from ..relay.settler import Attempt, Settler
from ..relay.takeovers import TakeoverChange
from ..relay.work_queue import WorkQueue


class Closable(Protocol):
    """Holds a connection."""

    def close(self) -> None:
        """Close the connection; the next call opens another one."""


class Listening(Protocol):
    """Listens for commits, where writers notify."""

    def run(self, hear: Callable[[], None]) -> None:
        """Listen until the current fiber ends, despite errors; call `hear` in it."""


class RelayWorker:
    """
    The thread bodies of one worker.

    Args:
        make_dispatcher: gets the queue between it and the fibers.
        reader: reads pages, in a fiber.
        tables: those of the reader and the settler, closed at the end.
        is_apart: whether the fibers have a thread of their own.
        name: distinguishes the threads of several workers.
    """

    def __init__(
        self,
        make_dispatcher: Callable[[WorkQueue], Dispatcher],
        *,
        reader: PageReader,
        settler: Settler,
        tables: Sequence[Closable],
        is_apart: bool = False,
        name: str = "",
    ) -> None:
        self.name = name
        self._reader = reader
        self._settler = settler
        self._tables = tables
        self._fibers = Fibers()
        self._table_fibers = Fibers() if is_apart else self._fibers
        self.queue: WorkQueue = WorkQueue(
            read=self._table_fibers.serve(self._read),
            settle=self._table_fibers.serve(self._settle),
            wake=self._fibers.wake,
        )
        """For other threads: to wake its dispatcher, and to have it drained."""
        self._dispatcher = make_dispatcher(self.queue)

    @property
    def counters(self) -> Counters:
        """What its relay counts."""
        return self._dispatcher.engine

    def bodies(
        self,
        is_over: threading.Event,
        on_takeover: Callable[[TakeoverChange], object],
    ) -> dict[str, Callable[[], None]]:
        """
        Return the body of each thread by the thread's name.

        A body runs until `is_over` is set and `wake()` is called.

        Args:
            on_takeover: called with each takeover, or its end, on the thread
                "dispatch".
        """
        bodies = {f"dispatch{self.name}": lambda: self._dispatch(is_over, on_takeover)}
        if self._table_fibers is not self._fibers:
            bodies[f"table{self.name}"] = lambda: self._access_table(is_over)
        return bodies

    def listen(self, listener: Listening, hear: Callable[[], None]) -> None:
        """
        Add a fiber that listens for commits; called before the threads start.

        Args:
            hear: called in that fiber when something was committed.
        """
        self._table_fibers.serve(listener.run)(hear)

    def wake(self) -> None:
        """Wake its threads, which then see that they have to end."""
        self._fibers.wake()
        self._table_fibers.wake()

    def _dispatch(
        self,
        is_over: threading.Event,
        on_takeover: Callable[[TakeoverChange], object],
    ) -> None:
        try:
            while not is_over.is_set():
                idle = self._dispatcher.step()
                for change in self._dispatcher.engine.takeovers.news():
                    on_takeover(change)
                self._fibers.run(idle)
        finally:
            self._end(self._fibers)
            self._dispatcher.close()

    def _access_table(self, is_over: threading.Event) -> None:
        try:
            while not is_over.is_set():
                self._table_fibers.run()
        finally:
            self._end(self._table_fibers)

    def _end(self, fibers: Fibers) -> None:
        fibers.close()
        if fibers is self._table_fibers:
            for table in self._tables:
                table.close()

    # In the fibers.

    def _read(self, request: PageRequest) -> None:
        self.queue.put_page(self._reader.carry_out(request))

    def _settle(self, settlement: Settlement) -> None:
        attempt = Attempt(settlement)
        while (retry_at := self._settler.advance(attempt)) is not None:
            this().sleep_until(retry_at)
        self.queue.put_settled(attempt.settled())
