"""
What several leaders of one outbox send, and what the division of the keys costs.

Each side's processes lead before the backlog is committed, so that all of them begin
at the same time. Two processes are faster than one only where each has a core.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from ..processes import Process
from ..waiting import eventually
from . import arrivals
from .session import Session
from .sides import HarvesterSide, in_turn, wait_until_empty
from .workload import Workload, empty, new_topic

NAME = "sharding"


@dataclass(frozen=True, slots=True)
class ShardedSide:
    """Processes that lead an equal number of shards each."""

    shards: int
    processes: int

    @property
    def name(self) -> str:
        return f"SHARDS={self.shards}, processes: {self.processes}"

    @contextmanager
    def running(self) -> Iterator[list[Process]]:
        """Start the processes; each leads its part when the block begins."""
        side = HarvesterSide(self.name, {"OUTBOX_SHARDS": str(self.shards)})
        group = f"bench-{uuid4()}"
        with ExitStack() as stack:
            found: list[Process] = []
            for number in range(self.processes):
                process = side.start(name=f"harvester-{number}", group=group)
                found.append(stack.enter_context(process))
                process.wait_for("leader_acquired")
            part = self.shards // self.processes
            eventually(lambda: all(_led(process) == part for process in found))
            yield found


SIDES: Final = (ShardedSide(1, 1), ShardedSide(2, 1), ShardedSide(2, 2))


def run(session: Session) -> None:
    workload = Workload(name="even keys", records=session.scale.records)

    def play(side: ShardedSide) -> None:
        topic = new_topic()
        empty()
        with side.running() as processes:
            begun = sum(process.cpu_seconds() for process in processes)
            workload.insert(topic)
            wait_until_empty()
            cpu = sum(process.cpu_seconds() for process in processes) - begun
        found = arrivals.read(topic)
        assert found.records == found.messages == workload.records, (side.name, found)
        session.book.note(NAME, workload.name, side.name, found.rate)
        cpu_a_record = 1e6 * cpu / workload.records
        session.book.note(
            NAME, workload.name, side.name, cpu_a_record, "µs", figure="CPU a record"
        )

    in_turn(SIDES, session.rounds, play)


def _led(process: Process) -> int:
    """How many shards a process leads, as far as it has said."""
    ended = process.all("leader_revoked", "leader_fenced")
    return len(process.all("leader_acquired")) - len(ended)
