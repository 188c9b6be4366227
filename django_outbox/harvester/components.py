"""The components of one run of a harvester, and the ports that they fulfil."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from ..message.record import Identity, Numbering
from ..relay.meter import Meter
from ..relay.ports import Gauge, Leadership, Term
from ..relay.releaser import Releaser
from .workers import Closable, RelayWorker

Learn: TypeAlias = Callable[[Identity | None], object]
"""Takes the identity that the database holds; raises what must end the process."""


class Election(Protocol):
    """Fast NELI, or the only member of `--solo`."""

    @property
    def leaving(self) -> frozenset[int]:
        """Shards that are given up together with one whose barrier drains."""

    @property
    def fault(self) -> str:
        """Why this process can neither lead nor stand by; any thread may ask."""

    def step(self, timeout: float) -> None:
        """Do one round of at most about `timeout` seconds."""

    def outlast(self) -> None:
        """Fence the shards that are given up and whose lease has expired meanwhile."""

    def stop(self) -> None:
        """Hand leadership over and leave; blocks while the barrier drains."""


class Listening(Protocol):
    """Listens for commits, where writers notify."""

    def run(self, hear: Callable[[], None], is_over: threading.Event) -> None:
        """Listen until `is_over` is set, despite errors; call `hear` at commits."""


class MeteredTable(Gauge, Closable, Protocol):
    """A table that can be asked about itself, and closed."""

    def ping(self) -> None:
        """Ask the table for nothing, to learn whether it can be reached."""

    def numbering(self) -> Numbering | None:
        """Read how rows and ids are numbered by cluster; None: they are not."""

    def identity(self) -> Identity | None:
        """Read the identity of the outbox; None: it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How long an orderly shutdown may take. Seconds."""

    drain: float
    """To settle the records in flight."""
    revoke: float
    """For the receivers of `leader_revoked`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Components:
    """The parts of one run, and the connections that belong to them."""

    election: Election
    leaderships: Sequence[Leadership]
    """That of each shard."""
    workers: Sequence[RelayWorker]
    meters: Sequence[Meter]
    """That of each shard."""
    metered: MeteredTable
    """The table that the meters read."""
    releaser: Releaser
    listener: Listening | None
    """None: new rows are found by polling only."""
    learn: Learn
    """Gets the identity from the leader's database with each meter reading."""

    def terms(self, now: float) -> list[Term]:
        """Return the terms in which this process is trusted to lead, by shard."""
        terms = (leadership.term for leadership in self.leaderships)
        return [t for t in terms if t is not None and t.remaining(now) > 0]
