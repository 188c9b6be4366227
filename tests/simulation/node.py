"""
A place where harvester processes live, one after the other.

What outlives a process belongs to the node: its name, and which ways of its
network are cut.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .process import Process
    from .world import World


WAYS: Final = ("group", "table", "writes", "broker")
"""What may be out of reach; "writes" is a table that only refuses these."""


class Node:
    """One machine or container."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.process: Process | None = None
        self._cut_until = dict.fromkeys(WAYS, 0.0)

    # Life and death.

    def start(self) -> None:
        """Start a process unless there is one; wait while nothing may live here."""
        if (wait := self.world.dead_until - self.world.time()) > 0:
            self.world.time.after(wait, self.start)
        elif self.process is None:
            self.world.trace(self.name, "starts")
            self.process = self.world.make_process(self)

    def stop(self, seconds: float) -> None:
        """Stop the process in good order and start the next one later."""
        if self.process is not None:
            self.process.stop()
            self._start_after(seconds)

    def crash(self, seconds: float) -> None:
        """Kill the process and start the next one later."""
        if self.process is not None:
            self.process.kill()
            self.process = None
            self._start_after(seconds)

    def ended(self) -> None:
        """Note that the process has ended in good order."""
        self.world.trace(self.name, "has stopped")
        self.process = None

    def _start_after(self, seconds: float) -> None:
        def start() -> None:
            if self.process is not None and self.process.is_stopping:
                self.world.time.after(0.05, start)
            else:
                self.start()

        self.world.time.after(seconds, start)

    # The network.

    def cut(self, way: str, seconds: float) -> None:
        """Cut one of the ways."""
        end = self.world.time() + seconds
        self._cut_until[way] = max(end, self._cut_until[way])
        if way == "group":
            self._tell_client()
            self.world.time.after(seconds + 0.001, self._tell_client)

    def mend(self) -> None:
        """Give all ways back."""
        self._cut_until = dict.fromkeys(self._cut_until, 0.0)
        self._tell_client()

    def is_cut_from(self, way: str) -> bool:
        """Whether nothing gets through between this node and that."""
        now = self.world.time()
        return now < self._cut_until[way] or now < self.world.away_until[way]

    def _tell_client(self) -> None:
        if self.process is not None:
            self.process.membership.cut(is_cut=self.is_cut_from("group"))
