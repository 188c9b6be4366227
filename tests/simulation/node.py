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
    """One machine or container; with several shards, its part for one of them."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.process: Process | None = None
        self.machine = [self]
        """Itself; with several shards, the node of each: one process has them all."""
        self._cut_until = dict.fromkeys(WAYS, 0.0)

    # Life and death.

    def start(self) -> None:
        """Start a process unless there is one; wait while nothing may live here."""
        if (wait := self.world.dead_until - self.world.time()) > 0:
            self.world.time.after(wait, self.start)
        elif not self._living:
            for node in self.machine:
                node.world.trace(node.name, "starts")
                node.process = node.world.make_process(node)

    def stop(self, seconds: float) -> None:
        """Stop the process in good order and start the next one later."""
        for process in self._living[:1]:
            process.stop()
            self._start_after(seconds)

    def crash(self, seconds: float) -> None:
        """Kill the process and start the next one later."""
        for process in self._living[:1]:
            process.kill()
            for node in self.machine:
                node.process = None
            self._start_after(seconds)

    def ended(self) -> None:
        """Note that the process has ended in good order."""
        self.world.trace(self.name, "has stopped")
        self.process = None

    def _start_after(self, seconds: float) -> None:
        def start() -> None:
            if any(process.is_stopping for process in self._living):
                self.world.time.after(0.05, start)
            else:
                self.start()

        self.world.time.after(seconds, start)

    @property
    def _living(self) -> list[Process]:
        """The parts of the process that have not ended."""
        return [node.process for node in self.machine if node.process is not None]

    # The network.

    def cut(self, way: str, seconds: float) -> None:
        """Cut one of the ways."""
        end = self.world.time() + seconds
        for node in self.machine:
            node._cut_until[way] = max(end, node._cut_until[way])
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
        for process in self._living[:1]:
            process.membership.cut(is_cut=self.is_cut_from("group"))
