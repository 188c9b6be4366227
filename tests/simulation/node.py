"""
A place where harvester processes live, one after the other.

What outlives a process belongs to the node: its name, and which ways of its
network are cut.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_outbox.election.ports import Listener
from django_outbox.exceptions import KafkaUnavailable
from django_outbox.testing.membership import FakeGroup, FakeMembership

from .process import Process

if TYPE_CHECKING:
    from .world import World


class Node:
    """One machine or container."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.process: Process | None = None
        self.is_cut_from_group = False
        self._is_cut_from_table = False
        self._is_cut_from_broker = False

    @property
    def is_cut_from_table(self) -> bool:
        return self._is_cut_from_table or self.world.is_table_away

    @property
    def is_cut_from_broker(self) -> bool:
        return self._is_cut_from_broker

    # Life and death.

    def start(self) -> None:
        if self.process is None:
            self.world.trace(self.name, "starts")
            self.process = Process(self)

    def ended(self) -> None:
        """Note that the process has ended in good order."""
        self.world.trace(self.name, "has stopped")
        self.process = None

    def stop(self, seconds: float) -> None:
        """Stop the process in good order and start the next one later."""
        if self.process is not None:
            self.process.stop()
            self._start_after(seconds)

    def crash(self, seconds: float) -> None:
        if self.process is not None:
            self.process.kill()
            self.process = None
            self._start_after(seconds)

    def _start_after(self, seconds: float) -> None:
        """Start when the former process is gone."""

        def start() -> None:
            if self.process is not None and self.process.is_stopping:
                self.world.time.after(0.05, start)
            else:
                self.start()

        self.world.time.after(seconds, start)

    # The network.

    def make_membership(self) -> FakeMembership:
        return _Membership(self, self.world.group)

    def cut_from_group(self, seconds: float) -> None:
        self.is_cut_from_group = True
        self._cut_client()
        self.world.time.after(seconds, self._mend_group)

    def _mend_group(self) -> None:
        self.is_cut_from_group = False
        self._cut_client()

    def _cut_client(self) -> None:
        if self.process is not None:
            self.process.membership.cut(is_cut=self.is_cut_from_group)

    def cut_from_table(self, seconds: float) -> None:
        self._is_cut_from_table = True
        self.world.time.after(seconds, self._mend_table)

    def _mend_table(self) -> None:
        self._is_cut_from_table = False

    def cut_from_broker(self, seconds: float) -> None:
        self._is_cut_from_broker = True
        self.world.time.after(seconds, self._mend_broker)

    def _mend_broker(self) -> None:
        self._is_cut_from_broker = False


class _Membership(FakeMembership):
    """Cannot join while its node is cut from the group."""

    def __init__(self, node: Node, group: FakeGroup) -> None:
        super().__init__(group, node.name)
        self._node = node

    def join(self, listener: Listener) -> None:
        if self._node.is_cut_from_group:
            raise KafkaUnavailable
        super().join(listener)
