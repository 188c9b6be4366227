"""One thread of a simulated process: when it runs, and what holds it up."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .process import Process


class Killed(BaseException):
    """Unwinds a thread whose process was killed while it waited."""


class Loop:
    """
    A body that is called again and again.

    It returns for how long there is nothing to do: infinity is until it is
    woken.
    """

    def __init__(self, process: Process, body: Callable[[], float]) -> None:
        self.runs: deque[tuple[float, float]] = deque(maxlen=16)
        """Begin and end of the last ones that are over."""
        self._process = process
        self._body = body
        self._ticket = 0
        self._runs_at = inf
        self._is_running = False
        self._is_woken = False
        self._stalled_until = 0.0

    def wake(self) -> None:
        """Run soon, or once more when it runs just now."""
        self._is_woken = True
        world = self._process.world
        soon = world.jitter()
        if not self._is_running and self._runs_at > world.time() + soon:
            self._plan(soon)

    def stall(self, seconds: float) -> None:
        """Get no time to run."""
        self._stalled_until = self._process.world.time() + seconds

    def _plan(self, delay: float) -> None:
        self._ticket += 1
        ticket = self._ticket
        time = self._process.world.time
        self._runs_at = time() + delay
        time.after(delay, lambda: self._run(ticket))

    def _run(self, ticket: int) -> None:
        process = self._process
        if ticket != self._ticket or process.is_dead:
            return
        held = max(process.thaw_at, self._stalled_until) - process.world.time()
        if held > 0:
            self._plan(held + process.world.jitter())
            return
        self._is_running, self._is_woken, self._runs_at = True, False, inf
        began_at = process.world.time()
        try:
            delay = self._body()
        except Killed:
            return
        self.runs.append((began_at, process.world.time()))
        self._is_running = False
        if self._is_woken:
            delay = process.world.jitter()
        if delay < inf:
            self._plan(delay)
