"""
What the figures have to reach, and whether they do.

A target that was not measured in this run says so and counts as not met.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from django_outbox.settings.options import OutboxSettings

from .failover import ROLLING, SHUTDOWN
from .readings import Summary, shown

Measured: TypeAlias = Callable[[str, str, str, str], Summary]
"""Looks a figure up by benchmark, case, figure and side; KeyError: not there."""

OURS, TWICE = "at-least-once", "exactly-once"
"""The deliveries."""
PEER: Final = "Debezium tuned"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One line of the table."""

    name: str
    value: Callable[[Measured], float]
    at_least: float | None = None
    at_most: float | None = None
    unit: str = "×"

    def is_met(self, value: float) -> bool:
        """Whether a value is within the bound."""
        if self.at_least is not None:
            return value >= self.at_least
        return self.at_most is not None and value <= self.at_most

    @property
    def bound(self) -> str:
        if self.at_least is not None:
            return f"≥ {shown(self.at_least)} {self.unit}"
        return f"≤ {shown(self.at_most or 0.0)} {self.unit}"


def _ratio(
    benchmark: str, case: str, figure: str, side: str, base: str
) -> Callable[[Measured], float]:
    """Divide a side by another one's same figure."""
    return lambda of: (
        of(benchmark, case, figure, side).median
        / of(benchmark, case, figure, base).median
    )


def _to_peer(case: str, side: str) -> Callable[[Measured], float]:
    """Divide rates that are counted in the same way: in the topic, by the broker."""
    return lambda of: (
        of("backlog", case, "rate in the topic", side).median
        / of("backlog", case, "rate", PEER).median
    )


def _median(*place: str) -> Callable[[Measured], float]:
    return lambda of: of(*place).median  # type: ignore[call-arg]


def _worst(*place: str) -> Callable[[Measured], float]:
    return lambda of: max(of(*place).values)  # type: ignore[call-arg]


def _lost(side: str) -> Callable[[Measured], float]:
    return _worst("backlog", "4 concurrent writers", "lost", side)


def _cpu(side: str) -> Callable[[Measured], float]:
    return _median("backlog", "1,000 keys", "CPU a record", side)


def _memory(side: str) -> Callable[[Measured], float]:
    return _worst("backlog", "900 KB values", "memory", side)


def _both(
    name: str,
    value: Callable[[str], Callable[[Measured], float]],
    *,
    at_most: float,
    unit: str,
) -> Iterator[Target]:
    """Yield the same target for each delivery."""
    for side in (OURS, TWICE):
        yield Target(
            name=f"{name}, {side}", value=value(side), at_most=at_most, unit=unit
        )


def _hot_key(of: Measured) -> float:
    """One acknowledgement at a time: as many a second as round trips."""
    reached = of("backlog", "one hot key", "rate", OURS).median
    return reached / of("floors", "one at a time", "rate", "librdkafka").median


def _pinned(of: Measured) -> float:
    pinned = of("pinned", "an old transaction open", "rate", OURS).median
    return pinned / of("pinned", "nothing open", "rate", OURS).median


def _stash(of: Measured) -> float:
    """Speed, so times the other way round."""
    case = "one row, commit to disk"
    orm = of("stashing", case, "a call", "ORM insert").median
    return orm / of("stashing", case, "a call", "stash()").median


_PINNED_TABLE: Final = "an old transaction open, table alone"
_TIMEOUT: Final = OutboxSettings().SESSION_TIMEOUT

TARGETS: Final = (
    Target(
        name="backlog, at-least-once ÷ Debezium tuned",
        value=_to_peer("1,000 keys", OURS),
        at_least=1.0,
    ),
    Target(
        name="backlog, exactly-once ÷ Debezium tuned",
        value=_to_peer("1,000 keys", TWICE),
        at_least=1.5,
    ),
    Target(
        name="one hot key, exactly-once ÷ Debezium tuned",
        value=_to_peer("one hot key", TWICE),
        at_least=1.5,
    ),
    Target(
        name="one hot key, at-least-once ÷ produce round trips",
        value=_hot_key,
        at_least=0.8,
    ),
    *_both("lost under concurrent writers", _lost, at_most=0, unit="records"),
    *_both("harvester's CPU a record", _cpu, at_most=10, unit="µs"),
    *_both("memory with 900 KB values", _memory, at_most=256, unit="MB"),
    Target(
        name="latency at 1,000/s, p50",
        value=_median("latency", "1,000/s", "p50", OURS),
        at_most=3,
        unit="ms",
    ),
    Target(
        name="latency at 1,000/s, p50, NOTIFY",
        value=_median("latency", "1,000/s", "p50", "at-least-once, NOTIFY"),
        at_most=1.5,
        unit="ms",
    ),
    Target(
        name="latency at 1,000/s, p99 ÷ Debezium tuned",
        value=_ratio("latency", "1,000/s", "p99", OURS, PEER),
        at_most=1,
    ),
    Target(
        name="idle, CPU",
        value=_median("idle", "nothing to do", "CPU", OURS),
        at_most=2,
        unit="% of a core",
    ),
    Target(
        name="idle, statements",
        value=_median("idle", "nothing to do", "statements", OURS),
        at_most=15,
        unit="1/s",
    ),
    Target(name="pinned by an old transaction ÷ free", value=_pinned, at_least=0.5),
    Target(
        name="pinned, p99 of the last marks",
        value=_worst("pinned", _PINNED_TABLE, "mark p99, last tenth", OURS),
        at_most=50,
        unit="ms",
    ),
    Target(name="stash() ÷ ORM insert", value=_stash, at_least=0.95),
    Target(
        name="take-over after kill −9, the longest",
        value=_worst(
            "failover",
            f"kill -9, session time-out {_TIMEOUT:g} s",
            "without a leader",
            "harvester",
        ),
        at_most=_TIMEOUT + 1,
        unit="s",
    ),
    Target(
        name="graceful take-over, the longest",
        value=_worst("failover", SHUTDOWN, "without a leader", "harvester"),
        at_most=1,
        unit="s",
    ),
    Target(
        name="graceful take-over by one that has just joined, the longest",
        value=_worst("failover", ROLLING, "without a leader", "harvester"),
        at_most=1,
        unit="s",
    ),
)


def targets(summaries: Sequence[Summary]) -> Iterator[tuple[Target, float | None]]:
    """Yield each target with what was reached; None: it was not measured."""
    known = {(s.benchmark, s.case, s.figure, s.side): s for s in summaries}

    def of(benchmark: str, case: str, figure: str, side: str) -> Summary:
        return known[benchmark, case, figure, side]

    for target in (*TARGETS, *_of_sizes(summaries)):
        try:
            value = target.value(of)
        except (KeyError, ZeroDivisionError):
            value = None
        yield target, value


def _of_sizes(summaries: Sequence[Summary]) -> Iterator[Target]:
    """Yield those whose cases depend on how much was measured."""
    grown = [s.case for s in summaries if s.benchmark == "growth"]
    few, most = (grown[0], grown[-1]) if grown else ("", "")
    yield Target(
        name=f"backlog of {most or 'many rows'} ÷ {few or 'few'}",
        value=lambda of: (
            of("growth", most, "rate", OURS).median
            / of("growth", few, "rate", OURS).median
        ),
        at_least=0.9,
    )
    many = next((s.case for s in summaries if s.side == "stash_many()"), "")
    yield Target(
        name="stash_many() ÷ COPY",
        value=_ratio("stashing", many, "rate", "stash_many()", "COPY"),
        at_least=0.8,
    )


def table(summaries: Sequence[Summary]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| figure | target | reached | |"
    yield "|---|---|---|---|"
    for target, value in targets(summaries):
        if value is None:
            reached, verdict = "", "not measured"
        else:
            reached = f"{shown(value)} {target.unit}"
            verdict = "met" if target.is_met(value) else "**missed**"
        yield f"| {target.name} | {target.bound} | {reached} | {verdict} |"
