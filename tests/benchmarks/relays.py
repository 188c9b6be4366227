"""Relays whose processes are killed, paused and started again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, Self
from uuid import uuid4

from ..processes import Process
from . import arrivals
from .debezium import DebeziumSide
from .servers import connect
from .sides import HarvesterSide
from .workload import Workload, empty, new_topic


class RelayProcess(Protocol):
    """A process of a relay; it has ended when a `with` block on it ends."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def kill(self) -> object:
        """End it as a crash does."""

    def pause(self) -> object:
        """Let it stand still."""

    def resume(self) -> object:
        """Let it go on."""


class Relay(Protocol):
    """A side whose processes can be killed."""

    can_be_two: ClassVar[bool]
    """Whether a second process may run beside the first."""

    @property
    def name(self) -> str:
        """As the tables have it."""

    def filled(self, workload: Workload, topic: str) -> AbstractContextManager[object]:
        """Have a backlog in the table while the block runs."""

    def start(self) -> RelayProcess:
        """Start one process more."""

    def left(self) -> int:
        """Rows that have still to be sent."""


@dataclass(frozen=True, slots=True)
class HarvesterRelay:
    """Processes of `runharvester`, all in one group."""

    side: HarvesterSide
    can_be_two: ClassVar = True
    group: str = field(default_factory=lambda: f"bench-{uuid4()}")

    @property
    def name(self) -> str:
        return self.side.name

    @contextmanager
    def filled(self, workload: Workload, topic: str) -> Iterator[None]:
        workload.fill(topic)
        yield
        empty()

    def start(self) -> Process:
        return self.side.start(group=self.group)

    def left(self) -> int:
        with connect() as connection:
            rows = connection.execute("SELECT count(*) FROM outbox").fetchall()
        return int(rows[0][0])


@dataclass(slots=True)
class DebeziumRelay:
    """A connector in the worker of the run, which is the one process."""

    side: DebeziumSide
    can_be_two: ClassVar = False
    """A replication slot has one reader."""
    _connector: str = ""
    _records: int = 0
    _topic: str = ""
    _last: str = ""
    """The topic of a row behind the backlog; rows are sent as they were committed."""

    @property
    def name(self) -> str:
        return self.side.name

    @contextmanager
    def filled(self, workload: Workload, topic: str) -> Iterator[None]:
        with self.side.stopped() as self._connector:
            workload.fill(topic)
            self._records, self._topic, self._last = (
                workload.records,
                topic,
                new_topic(),
            )
            Workload(name="last", records=1).insert(self._last)
            yield

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """The worker ends with the run."""

    def start(self) -> Self:
        if self.side.worker.is_running():
            self.side.worker.resume(self._connector)
        else:
            self.side.worker.start()
            self.side.create(self._connector)
        return self

    def kill(self) -> None:
        self.side.worker.kill()

    def pause(self) -> None:
        self.side.worker.pause()

    def resume(self) -> None:
        self.side.worker.unpause()

    def left(self) -> int:
        """Count; it deletes no row, so messages tell."""
        if arrivals.count(self._last):
            return 0
        return max(1, self._records - arrivals.count(self._topic))
