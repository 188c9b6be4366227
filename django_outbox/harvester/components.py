"""
What one run of a harvester is made of.

`harvester/harvester.py` builds the parts, `harvester/threads.py` gives each its thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from ..message.record import Identity, Numbering
from ..relay.meter import Meter
from ..relay.ports import Gauge, Leadership
from ..relay.releaser import Releaser
from .workers import Closable, Listening, RelayWorker

Learn: TypeAlias = Callable[[Identity | None], object]
"""Takes what the database says of the outbox; raises what must end the process."""


class Election(Protocol):
    """Fast NELI, or the lone leader of `--solo`."""

    def step(self, timeout: float) -> None:
        """Do one round of at most about `timeout` seconds."""

    def stop(self) -> None:
        """Hand over and leave; blocks while the barrier drains."""


class Table(Gauge, Closable, Protocol):
    """A table that can be measured and closed."""

    def numbering(self) -> Numbering | None:
        """Read what makes rows and ids one cluster's own; None: nothing does."""

    def identity(self) -> Identity | None:
        """Read which outbox this is; None: it has no identity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How long an orderly end may take. Seconds."""

    drain: float
    """To settle what is in flight."""
    revoke: float
    """For the receivers of leader_revoked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Components:
    """The concerns of one run, and the connections that go with them."""

    election: Election
    leadership: Leadership
    workers: Sequence[RelayWorker]
    meter: Meter
    metered: Table
    """What the meter reads."""
    releaser: Releaser
    listener: Listening | None
    """None: new rows are found by polling alone."""
    learn: Learn | None = None
    """Gets what the leader's database says, from time to time."""
