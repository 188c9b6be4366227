"""
What one run of a harvester is made of.

`harvester.py` builds the parts, `machinery.py` gives each its thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from .events import Event
from .relay.dispatch import Dispatcher
from .relay.mark import Marker
from .relay.meter import Meter
from .relay.ports import Gauge, Leadership
from .relay.settle import Settler

Observer: TypeAlias = Callable[[Event], None]
"""Told of every event on the thread where it happens; must return at once."""


class Election(Protocol):
    """Fast NELI, or the lone leader of `--solo`."""

    def step(self, timeout: float) -> None:
        """Do one round of at most about `timeout` seconds."""

    def stop(self) -> None:
        """Hand over and leave; blocks while the barrier drains."""


class Closable(Protocol):
    """Whatever holds a connection."""

    def close(self) -> None:
        """Let it go; the next use would connect anew."""


class Table(Gauge, Closable, Protocol):
    """A table that can be measured and closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How long an orderly end may take. Seconds."""

    drain: float
    """To settle what is in flight."""
    revoke: float
    """For the receivers of leader_revoked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The concerns of one run, and the connections that go with them."""

    election: Election
    leadership: Leadership
    marker: Marker
    dispatcher: Dispatcher
    settler: Settler
    meter: Meter
    marking: Closable
    """The marker's table, closed when its thread ends."""
    settling: Table
    """The settler's table, also read by the meter."""
