"""
One relay worker: moves the rows of a shard to Kafka, on three threads.

*dispatch* decides and speaks to Kafka, *read* reads pages, *settle* deletes and parks
rows, the last two over a connection of their own. There is one worker for each shard.
With several clusters, exactly-once delivery also has one for each cluster whose records
this process may have to relay, so that none of them waits for another.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, NamedTuple, Protocol, TypeVar

from ..clock import boottime
from ..observability.deliveries import Deliveries
from ..relay.dispatcher import Dispatcher
from ..relay.meter import Counters
from ..relay.page_reader import PageReader
from ..relay.page_request import PageRequest
from ..relay.ports import Leadership
from ..relay.settlement import Settlement
from ..relay.settler import Attempt, Settler
from ..relay.takeovers import TakeoverChange
from ..relay.work_queue import WorkQueue

ItemT = TypeVar("ItemT")


class Closable(Protocol):
    """Holds a connection."""

    def close(self) -> None:
        """Close the connection; the next call opens another one."""


class Inbox(Generic[ItemT]):
    """What one thread has to do, one item after the other, until it is closed."""

    def __init__(self) -> None:
        self._items: SimpleQueue[ItemT | None] = SimpleQueue()
        self._is_closed = threading.Event()

    def put(self, item: ItemT) -> None:
        """Add an item; called on any thread."""
        self._items.put(item)

    def close(self) -> None:
        """End `serve()` and `sleep_until()`; called on any thread."""
        self._is_closed.set()
        self._items.put(None)

    def serve(self, handle: Callable[[ItemT], object]) -> None:
        """Handle items until it is closed."""
        while (item := self._items.get()) is not None and not self._is_closed.is_set():
            handle(item)

    def sleep_until(self, at: float) -> bool:
        """Wait until then (monotonic seconds); False: it was closed before."""
        return not self._is_closed.wait(max(0.0, at - boottime()))


class Duty(NamedTuple):
    """Whose records a worker relays."""

    leadership: Leadership
    """Of their shard."""
    is_own: bool = True
    """Whether they are this cluster's."""
    name: str = ""
    """Distinguishes the threads of several workers."""


class RelayWorker:
    """
    The thread bodies of one worker.

    Args:
        make_dispatcher: gets the queue between it and the other threads.
        duty: whose records it relays.
        reader: reads pages, from `reading`.
        settler: settles records, in `settling`.
        deliveries: told what Kafka has acknowledged.
    """

    def __init__(
        self,
        make_dispatcher: Callable[[WorkQueue], Dispatcher],
        *,
        duty: Duty,
        reader: PageReader,
        reading: Closable,
        settler: Settler,
        settling: Closable,
        deliveries: Deliveries,
    ) -> None:
        self.duty = duty
        self.deliveries = deliveries
        self._reader, self._reading = reader, reading
        self._settler, self._settling = settler, settling
        self._requests = Inbox[PageRequest]()
        self._settlements = Inbox[Settlement]()
        self._is_woken = threading.Event()
        self.queue = WorkQueue(
            read=self._requests.put,
            settle=self._settlements.put,
            wake=self._is_woken.set,
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

        The bodies run until `end()`; set `is_over` before it.

        Args:
            on_takeover: called with each takeover, or its end, on the thread
                "dispatch".
        """
        return {
            f"dispatch{self.duty.name}": lambda: self._dispatch(is_over, on_takeover),
            f"read{self.duty.name}": self._read,
            f"settle{self.duty.name}": self._settle,
        }

    def end(self) -> None:
        """End its threads, once `is_over` is set."""
        self._is_woken.set()
        self._requests.close()
        self._settlements.close()

    def _dispatch(
        self,
        is_over: threading.Event,
        on_takeover: Callable[[TakeoverChange], object],
    ) -> None:
        dispatcher, is_woken = self._dispatcher, self._is_woken
        try:
            while not is_over.is_set():
                is_woken.clear()
                idle = dispatcher.step()
                for change in dispatcher.engine.takeovers.changes():
                    on_takeover(change)
                if idle:
                    is_woken.wait(idle)
        finally:
            dispatcher.close()

    def _read(self) -> None:
        try:
            self._requests.serve(
                lambda request: self.queue.put_page(self._reader.carry_out(request))
            )
        finally:
            self._reading.close()

    def _settle(self) -> None:
        try:
            self._settlements.serve(self._carry_out)
        finally:
            self._settling.close()

    def _carry_out(self, settlement: Settlement) -> None:
        if not settlement.is_rest:
            self.deliveries(settlement.acknowledged)
        attempt = Attempt(settlement)
        while (retry_at := self._settler.advance(attempt)) is not None:
            if not self._settlements.sleep_until(retry_at):
                return
        self.queue.put_settled(attempt.settled())
