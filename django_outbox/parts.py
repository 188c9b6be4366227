"""
What one run of a harvester is made of.

`harvester.py` builds the parts, `machinery.py` gives each its thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from .events import Event
from .records import Identity, Settlement
from .relay.meter import Meter
from .relay.ports import Gauge, Leadership, Term
from .relay.release import Releaser
from .relay.settle import Settler
from .relay.takeovers import Takeovers

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

    def identity(self) -> Identity | None:
        """Read what makes rows and ids one cluster's own; None: nothing does."""


class Marking(Protocol):
    """MP/R's `Marker`, or the ledger relay's `Finder`."""

    def carry_out(self, claim: Any) -> None:
        """Do one round trip to the table; the outcome goes into the claim."""


class Dispatching(Protocol):
    """MP/R's `Dispatcher`, or the ledger relay's: see `relay/handoff.py`."""

    takeovers: Takeovers

    def drain(self, term: Term, timeout: float) -> bool:
        """Stop producing in this term, and wait until all of it is settled."""

    def claimed(self, claim: Any) -> None:
        """Take back a claim."""

    def answer(self, settlement: Settlement) -> None:
        """Take back a settlement that the table now holds."""

    def wake(self) -> None:
        """End a wait: something changed."""

    def rest(self, seconds: float) -> None:
        """Wait until something changes, for so many seconds at most."""

    def step(self) -> float:
        """Do one round; return for how many seconds there is nothing to do."""

    def close(self) -> None:
        """Drop the client; the last call."""


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
    marker: Marking
    dispatcher: Dispatching
    settler: Settler
    meter: Meter
    releaser: Releaser
    """Served by the settler's thread."""
    marking: Closable
    """The marker's table, closed when its thread ends."""
    settling: Table
    """The settler's table, also read by the meter."""
