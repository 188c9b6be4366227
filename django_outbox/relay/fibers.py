"""
Fibers: several bodies on one thread, each of which may wait for its own socket.

A leader waits for PostgreSQL and for Kafka at the same time. Where each has a
thread, the GIL goes from one to the other all the time, and on a small
machine that costs a sixth of the rate. A fiber is written as if it blocked;
where it would wait for a socket, its thread goes on with something else. Fibers
are greenlets: see docs/decisions/greenlet.md.
"""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from math import inf
from typing import Any, Final, TypeVar

from greenlet import GreenletExit, getcurrent, greenlet

from ..clock import boottime

READABLE: Final = 1
WRITABLE: Final = 2

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class Fiber(greenlet):
    """
    Handles what is put into its inbox, one item after the other.

    It belongs to the thread that makes it. What follows is called in the fiber.
    """

    def __init__(
        self, fibers: Fibers, inbox: deque[Any], handle: Callable[[Any], object]
    ) -> None:
        super().__init__(self._live)
        self._fibers = fibers
        self._inbox = inbox
        self._handle = handle
        self._condition: Callable[[], object] = inbox.__len__
        """What lets it go on, but for a socket and a time."""
        self.due_at = inf
        """Monotonic seconds at which it goes on, whatever else it waits for."""

    def is_due(self, now: float) -> bool:
        """Whether it can go on; `Fibers` resumes one that waits for a socket."""
        return now >= self.due_at or bool(self._condition())

    def wait_for(self, socket: int, events: int, *, until: float = inf) -> int:
        """
        Wait until a socket is `READABLE` or `WRITABLE`; return what it is.

        0: it was neither until then, in monotonic seconds.
        """
        self._fibers.expect(self, socket, events)
        if ready := self._rest(_never, until=until):
            return int(ready)
        self._fibers.forget(socket)
        return 0

    def sleep_until(self, at: float) -> None:
        """Go on at so many monotonic seconds."""
        self._rest(_never, until=at)

    def wait_until_done(self, outcome: Future[Any], *, until: float) -> None:
        """Wait for what another thread does, at most until then (monotonic seconds)."""
        outcome.add_done_callback(lambda _: self._fibers.wake())
        self._rest(outcome.done, until=until)

    def _live(self) -> None:
        while True:
            while self._inbox:
                self._handle(self._inbox.popleft())
                self._fibers.wake()
            self._rest(self._inbox.__len__)

    def _rest(self, condition: Callable[[], object], *, until: float = inf) -> Any:
        if self._fibers.is_closed:
            raise GreenletExit
        self._condition, self.due_at = condition, until
        assert self.parent is not None
        return self.parent.switch()


def _never() -> bool:
    """Wait for a socket, or for a time, and for nothing else."""
    return False


def here() -> Fiber | None:
    """Return the fiber in which this is called, if it is one."""
    current = getcurrent()
    return current if isinstance(current, Fiber) else None


def call(
    work: Callable[[], ResultT],
    *,
    discard: Callable[[ResultT], object],
    timeout: float,
) -> ResultT:
    """
    Do on a thread of its own what blocks, and wait for it, in a fiber or a thread.

    Args:
        discard: called, on that thread, with a result that comes too late.
        timeout: seconds to wait at most.

    Raises:
        TimeoutError: the work goes on, and its result will be discarded.
    """
    outcome: Future[ResultT] = Future()

    def work_apart() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:  # noqa: BLE001 (raised by result())
            outcome.set_exception(error)

    def throw_away(ended: Future[ResultT]) -> None:
        if not ended.exception():
            discard(ended.result())

    threading.Thread(target=work_apart, name="outbox-call", daemon=True).start()
    try:
        if fiber := here():
            fiber.wait_until_done(outcome, until=boottime() + timeout)
        return outcome.result(0.0 if fiber else timeout)
    except BaseException:
        # Without effect on work that has failed.
        outcome.add_done_callback(throw_away)
        raise


def this() -> Fiber:
    """Return the fiber in which this is called, where it can be nothing else."""
    fiber = here()
    assert fiber is not None
    return fiber


class Fibers:
    """The fibers of one thread, which calls `run()` again and again, and `close()`."""

    def __init__(self) -> None:
        self.is_closed = False
        self._bodies: list[tuple[deque[Any], Callable[[Any], object]]] = []
        self._fibers: list[Fiber] = []
        self._expected: dict[int, Fiber] = {}
        """Who waits for a socket, by its number."""
        self._sockets = select.poll()
        self._lock = threading.Lock()
        self._is_woken = False
        self._bell = self._rope = -1
        """A pipe: to pull the rope on another thread ends a wait."""
        self._thread = 0
        """The one that runs them, once it has begun to."""

    def serve(self, handle: Callable[[ItemT], object]) -> Callable[[ItemT], None]:
        """
        Have a fiber handle items; return what gives it one, on any thread.

        Called before the first `run()`.

        Args:
            handle: what it raises ends the fiber, and `run()` raises it.
        """
        inbox: deque[ItemT] = deque()
        self._bodies.append((inbox, handle))

        def put(item: ItemT) -> None:
            inbox.append(item)
            # On its own thread, run() looks before it waits.
            if threading.get_ident() != self._thread:
                self.wake()

        return put

    def wake(self) -> None:
        """End a wait, the present or the next one; called on any thread."""
        with self._lock:
            if not self._is_woken:
                self._is_woken = True
                if self._rope >= 0 and threading.get_ident() != self._thread:
                    os.write(self._rope, b"!")

    def run(self, timeout: float | None = None) -> None:
        """
        Let all fibers go on that can; then wait until another one can.

        It ends when an item has been handled, and by `wake()`.

        Args:
            timeout: seconds to wait at most.
        """
        if not self._thread:
            self._begin()
        now, due_at = boottime(), inf
        for fiber in self._fibers:
            if fiber.is_due(now):
                fiber.switch()
            due_at = min(due_at, fiber.due_at)
        if due_at < inf:
            timeout = max(0.0, min(due_at - now, inf if timeout is None else timeout))
        for socket, events in self._sockets.poll(self._milliseconds(timeout)):
            if socket == self._bell:
                os.read(self._bell, 64)
            else:
                self._sockets.unregister(socket)
                self._expected.pop(socket).switch(_ready(events))
        self._is_woken = False

    def expect(self, fiber: Fiber, socket: int, events: int) -> None:
        """Let a fiber go on when a socket is ready."""
        self._expected[socket] = fiber
        self._sockets.register(socket, _wanted(events))

    def forget(self, socket: int) -> None:
        """Expect nothing more of a socket."""
        del self._expected[socket]
        self._sockets.unregister(socket)

    def close(self) -> None:
        """End all fibers where they wait."""
        self.is_closed = True
        for fiber in filter(None, self._fibers):
            fiber.throw()
        with self._lock:
            if self._rope >= 0:
                os.close(self._bell)
                os.close(self._rope)
            self._rope = -1

    def _begin(self) -> None:
        self._thread = threading.get_ident()
        self._fibers = [Fiber(self, *body) for body in self._bodies]
        with self._lock:
            self._bell, self._rope = os.pipe()
        self._sockets.register(self._bell, select.POLLIN)

    def _milliseconds(self, timeout: float | None) -> int | None:
        return 0 if self._is_woken else _milliseconds(timeout)


def poll(socket: int, events: int, *, timeout: float) -> int:
    """Wait for a socket where there is no fiber; return as `wait_for` does."""
    waiting = select.poll()
    waiting.register(socket, _wanted(events))
    found = waiting.poll(_milliseconds(None if timeout == inf else timeout))
    return _ready(found[0][1]) if found else 0


def _milliseconds(timeout: float | None) -> int | None:
    if not timeout:
        return None if timeout is None else 0
    return max(1, round(1000 * timeout))


def _wanted(events: int) -> int:
    wanted = select.POLLIN if events & READABLE else 0
    return wanted | (select.POLLOUT if events & WRITABLE else 0)


def _ready(events: int) -> int:
    """Say what a socket is ready for; a read reports an error, too."""
    writable = WRITABLE if events & select.POLLOUT else 0
    return writable | (READABLE if events & ~select.POLLOUT else 0)
