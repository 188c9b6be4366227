"""One run of the benchmarks: how large, which sides, and the book."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from django_outbox.devstack.service import Service

from .readings import Book
from .sides import Side


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much is measured. Durations are seconds."""

    records: int = 200_000
    """Of a backlog."""
    warm_up_records: int = 300_000
    """Drained first: a broker that has just started has still to compile its code."""
    growth: tuple[int, ...] = (100_000, 1_000_000)
    huge: int = 0
    """Rows of one backlog more, after those."""
    dead: int = 1_000_000
    """Rows that pass while an old transaction is open."""
    rates: tuple[int, ...] = (1_000, 5_000)
    """Records a second."""
    warm_up: float = 10.0
    steady: float = 20.0
    idle: float = 20.0
    losses: float = 15.0
    """How long several writers write while rows are counted."""
    catching_up: float = 16.0
    """How long writers write after a leader was killed; six of them nobody leads."""
    messages: int = 20_000
    """That are consumed."""
    takeovers: int = 10
    """Of each kind."""
    calls: int = 3_000
    """Of `stash()`."""
    packages: int = 5_000
    """Rows of the other packages' outboxes."""
    raw: int = 500_000
    """Messages and rows of the floors."""


QUICK = Scale(
    records=10_000,
    warm_up_records=10_000,
    growth=(5_000, 20_000),
    dead=20_000,
    warm_up=2.0,
    steady=3.0,
    idle=4.0,
    losses=3.0,
    catching_up=12.0,
    messages=500,
    takeovers=1,
    calls=200,
    packages=500,
    raw=20_000,
)
"""Enough to see that everything works; the figures are worth nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What each benchmark gets."""

    scale: Scale = field(default_factory=Scale)
    rounds: int = 5
    book: Book = field(default_factory=Book)
    peers: Sequence[Side] = ()
    """Sides that are not ours."""
    quickest: Sequence[Side] = ()
    """Peers as they are set up for the lowest latency."""
    kafka: Service | None = None
    """The broker, when it is the run's own and can be killed."""


Benchmark: TypeAlias = Callable[[Session], None]
"""Measures, and notes what it reads."""
