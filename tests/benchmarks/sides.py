"""
Who takes part: each side drains a backlog, or relays while others write.

A harvester is the real process, as an operator starts it. Its CPU time counts
from its leadership to the end of the process, so that neither Python's start nor
the election is in it.
"""

from __future__ import annotations

import os
import re
import resource
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol, TypeVar
from uuid import uuid4

from ..acceptance.tables import project_environment
from ..processes import MANAGE, Process
from ..waiting import eventually
from .servers import connect
from .workload import Workload

T = TypeVar("T")

PATIENCE: Final = 1800.0
"""Seconds for a side to do its work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """What it took to drain a backlog."""

    seconds: float | None
    """From its beginning to the empty table; None: it deletes nothing."""
    cpu_seconds: float | None = None
    """Of the side's own process; None: it is not known."""
    memory: float | None = None
    """The most that the process has held, in MB; None: it is not known."""


class Running(Protocol):
    """A side at work."""

    def cpu_seconds(self) -> float:
        """User and system time of its process so far."""


class Side(Protocol):
    """One of those that are compared."""

    @property
    def name(self) -> str:
        """As the tables have it."""

    def drain(self, workload: Workload, topic: str) -> Drained:
        """Put the backlog into the table and relay it."""

    def running(self, topic: str) -> AbstractContextManager[Running]:
        """Relay while the block runs; it begins when that has begun."""


@dataclass(frozen=True, slots=True)
class HarvesterSide:
    """One process of `runharvester`."""

    name: str
    variables: Mapping[str, str] = field(default_factory=dict)
    """Settings, as environment variables."""

    def drain(self, workload: Workload, topic: str) -> Drained:
        workload.fill(topic)
        with self.start("--drain") as harvester:
            before = _cpu_of_children()
            acquired = harvester.wait_for("leader_acquired")
            begun = harvester.cpu_seconds()
            harvester.wait_for("leader_revoked", timeout=PATIENCE)
            memory = _most_memory(harvester.pid)
            assert harvester.exit_code(PATIENCE) == 0, harvester.report()
            cpu = _cpu_of_children() - before - begun
            (revoked,) = harvester.all("leader_revoked")
        seconds = (revoked["boottime_ns"] - acquired["boottime_ns"]) / 1e9
        return Drained(seconds=seconds, cpu_seconds=cpu, memory=memory)

    @contextmanager
    def running(self, topic: str = "") -> Iterator[Process]:
        with self.start() as harvester:
            harvester.wait_for("leader_acquired")
            yield harvester
            harvester.terminate()
            assert harvester.exit_code() == 0, harvester.report()

    def environment(self, group: str = "") -> dict[str, str]:
        """Return the environment of its process."""
        return {
            **project_environment(),
            "OUTBOX_LEADER_GROUP": group or f"bench-{uuid4()}",
            **self.variables,
        }

    def start(self, *arguments: str, name: str = "", group: str = "") -> Process:
        """Start one process more; `end()` it."""
        name = name or self.name.replace(" ", "-")
        command = ["runharvester", "--name", name, "--log-format", "json", *arguments]
        return Process(name, command_of(*command), self.environment(group))


AT_LEAST_ONCE: Final = HarvesterSide("at-least-once")
EXACTLY_ONCE: Final = HarvesterSide("exactly-once", {"OUTBOX_DELIVERY": "exactly-once"})
TABLE_MARKS: Final = HarvesterSide("MARKS=table", {"OUTBOX_MARKS": "table"})
ONE_PER_KEY: Final = HarvesterSide(
    "one record per key", {"OUTBOX_MAX_IN_FLIGHT_PER_KEY": "1"}
)
NOTIFIED: Final = HarvesterSide("at-least-once, NOTIFY", {"OUTBOX_NOTIFY": "1"})
"""For writers that notify."""
HARVESTERS: Final = (AT_LEAST_ONCE, EXACTLY_ONCE)


def command_of(*arguments: str) -> list[str]:
    """Return how the example project's commands are started."""
    return [sys.executable, str(MANAGE), *arguments]


def wait_until_empty() -> None:
    """Return when no row is left."""
    with connect() as connection:
        eventually(
            lambda: not connection.execute("SELECT FROM outbox LIMIT 1").rowcount,
            timeout=PATIENCE,
            # Each question takes time from what is measured.
            interval=0.2,
            what="an empty table",
        )


def in_turn(sides: Sequence[T], rounds: int, run: Callable[[T], None]) -> None:
    """Let all sides play one round after the other, so that all meet the same load."""
    for number in range(rounds):
        print(f" round {number + 1} of {rounds}, load {os.getloadavg()[0]:.1f}")
        for side in sides:
            run(side)


def _most_memory(pid: int) -> float | None:
    """Return the most that a process has held, in MB; None: it has ended."""
    try:
        text = Path(f"/proc/{pid}/status").read_text("ascii")
    except OSError:
        return None
    found = re.search(r"^VmHWM:\s+(\d+) kB$", text, re.MULTILINE)
    return int(found[1]) / 1000 if found else None


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
