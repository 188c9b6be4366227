"""
What the figures have to reach, and whether they do.

Most targets are ratios of two sides of the same rounds: they mean the same on
every machine. A target that was not measured in this run says so and counts as
not met.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from django_outbox.settings.options import OutboxSettings

from .backlog import EVEN, HOT, LARGE, SKEWED
from .catching_up import CASE as TAKEOVER
from .consumers import BY_HAND
from .consumers import CASE as CONSUMED
from .failover import ROLLING, SHUTDOWN
from .memory import CASE as HUGE_VALUES
from .naive import NAIVE
from .pinned import FREE, PINNED
from .prototype import PROTOTYPE
from .readings import Summary, shown
from .stashing import DURABLE, MANY

OURS, TWICE, NOTIFIED = "at-least-once", "exactly-once", "at-least-once, NOTIFY"
PEER: Final = "Debezium tuned"


class Place(NamedTuple):
    """Where a figure is found."""

    benchmark: str
    case: str
    figure: str
    side: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One line of the table."""

    name: str
    of: Place
    base: Place | None = None
    """The value is a ratio to this figure of the same round."""
    at_least: float | None = None
    at_most: float | None = None
    unit: str = "×"
    summarize: Callable[[Sequence[float]], float] = statistics.median
    """Makes one value of those of all rounds."""

    def values(self, known: Mapping[Place, Summary]) -> Sequence[float]:
        """
        Return the value of each round.

        Raises:
            KeyError: it was not measured.
        """
        values = known[self.of].values
        if self.base is None:
            return values
        base = known[self.base]
        if len(values) != len(base.values):
            # A round was cut short: there are no pairs.
            return [value / base.median for value in values]
        return [value / other for value, other in zip(values, base.values, strict=True)]

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


def _rate(case: str, side: str) -> Place:
    return Place("backlog", case, "rate", side)


def _cpu(side: str) -> Place:
    return Place("backlog", EVEN, "CPU a record", side)


def _latency(figure: str, side: str, rate: str = "1,000/s") -> Place:
    return Place("latency", rate, figure, side)


def _backlog() -> Iterator[Target]:
    yield Target(
        name="at-least-once, even keys ÷ Debezium tuned",
        of=_rate(EVEN, OURS),
        base=_rate(EVEN, PEER),
        at_least=1.5,
    )
    yield Target(
        name="at-least-once, even keys ÷ pipelined prototype",
        of=_rate(EVEN, OURS),
        base=_rate(EVEN, PROTOTYPE.name),
        at_least=0.9,
    )
    for case in (SKEWED, HOT):
        yield Target(
            name=f"at-least-once, {case} ÷ even keys",
            of=_rate(case, OURS),
            base=_rate(EVEN, OURS),
            at_least=0.85,
        )
    for base, bound in ((PEER, 1.5), (OURS, 0.9)):
        for case in (EVEN, SKEWED, HOT):
            yield Target(
                name=f"exactly-once, {case} ÷ {base}",
                of=_rate(case, TWICE),
                base=_rate(case, base),
                at_least=bound,
            )
    for side in (OURS, TWICE):
        yield Target(
            name=f"{side}, CPU a record ÷ naive loop",
            of=_cpu(side),
            base=_cpu(NAIVE.name),
            at_most=1.6,
        )
    for side in (OURS, TWICE):
        yield Target(
            name=f"{side}, 10 KB values ÷ Debezium tuned",
            of=_rate(LARGE, side),
            base=_rate(LARGE, PEER),
            at_least=1.2,
        )


def _latencies() -> Iterator[Target]:
    for side, figure, bound in (
        (OURS, "p50", 0.9),
        (NOTIFIED, "p50", 0.5),
        (OURS, "p99", 1.0),
        (TWICE, "p50", 4.0),
        (TWICE, "p99", 2.0),
    ):
        yield Target(
            name=f"{side}, latency at 1,000/s, {figure} ÷ Debezium tuned",
            of=_latency(figure, side),
            base=_latency(figure, PEER),
            at_most=bound,
        )
    yield Target(
        name="at-least-once, 5,000/s reached",
        of=_latency("rate reached", OURS, "5,000/s"),
        at_least=98,
        unit="%",
    )
    yield Target(
        name="at-least-once, latency at 5,000/s, p99 ÷ Debezium tuned",
        of=_latency("p99", OURS, "5,000/s"),
        base=_latency("p99", PEER, "5,000/s"),
        at_most=1.0,
    )
    for side in (OURS, TWICE):
        yield Target(
            name=f"{side}, six seconds of backlog caught up after",
            of=Place("catching-up", TAKEOVER, "until caught up", side),
            at_most=1.5,
            unit="s",
        )


def _applications() -> Iterator[Target]:
    yield Target(
        name="stash_many() ÷ COPY",
        of=Place("stashing", MANY, "rate", "stash_many()"),
        base=Place("stashing", MANY, "rate", "COPY"),
        at_least=0.8,
    )
    yield Target(
        name="time of stash() ÷ ORM insert",
        of=Place("stashing", DURABLE, "a call", "stash()"),
        base=Place("stashing", DURABLE, "a call", "ORM insert"),
        at_most=1.05,
    )
    yield Target(
        name="runconsumer ÷ the same inserts by hand",
        of=Place("consumers", CONSUMED, "rate", "runconsumer"),
        base=Place("consumers", CONSUMED, "rate", BY_HAND),
        at_least=0.7,
    )


def _operations() -> Iterator[Target]:
    for side in (OURS, TWICE):
        yield Target(
            name=f"{side}, lost under concurrent writers",
            of=Place("losses", "4 concurrent writers", "lost", side),
            at_most=0,
            unit="records",
            summarize=max,
        )
    for side in (OURS, TWICE):
        yield Target(
            name=f"{side}, memory with 900 KB values",
            of=Place("memory", HUGE_VALUES, "memory", side),
            at_most=256,
            unit="MB",
            summarize=max,
        )
    yield Target(
        name="idle leader, CPU",
        of=Place("idle", "nothing to do", "CPU", OURS),
        at_most=2,
        unit="% of a core",
    )
    yield Target(
        name="idle leader, statements",
        of=Place("idle", "nothing to do", "statements", OURS),
        at_most=15,
        unit="1/s",
    )
    yield Target(
        name="beside an old transaction ÷ without it",
        of=Place("pinned", PINNED, "rate", OURS),
        base=Place("pinned", FREE, "rate", OURS),
        at_least=0.5,
    )
    yield Target(
        name="beside an old transaction, p99 of the last page reads",
        of=Place("pinned", f"{PINNED}, table alone", "mark p99, last tenth", OURS),
        at_most=50,
        unit="ms",
        summarize=max,
    )
    timeout = OutboxSettings().SESSION_TIMEOUT
    dead = timeout + 1
    for name, case, bound in (
        ("take-over after kill −9", f"kill -9, session time-out {timeout:g} s", dead),
        ("graceful take-over", SHUTDOWN, 1.0),
        ("graceful take-over by a process that has just joined", ROLLING, 1.0),
    ):
        yield Target(
            name=f"{name}, the longest",
            of=Place("failover", case, "without a leader", "harvester"),
            at_most=bound,
            unit="s",
            summarize=max,
        )


TARGETS: Final = (
    *_backlog(),
    *_latencies(),
    *_applications(),
    *_operations(),
)


def targets(
    summaries: Sequence[Summary],
) -> Iterator[tuple[Target, Sequence[float]]]:
    """Yield each target with its value of each round; none: it was not measured."""
    known = {Place(s.benchmark, s.case, s.figure, s.side): s for s in summaries}
    for target in (*TARGETS, _growth(summaries)):
        try:
            yield target, target.values(known)
        except (KeyError, ZeroDivisionError):
            yield target, ()


def _growth(summaries: Sequence[Summary]) -> Target:
    """Return the one whose cases depend on how much was measured."""
    grown = [s.case for s in summaries if s.benchmark == "growth"]
    few, most = (grown[0], grown[-1]) if grown else ("few", "many rows")
    return Target(
        name=f"backlog of {most} ÷ {few}",
        of=Place("growth", most, "rate", OURS),
        base=Place("growth", few, "rate", OURS),
        at_least=0.9,
    )


def table(summaries: Sequence[Summary]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| figure | target | reached | from – to | |"
    yield "|---|---|---|---|---|"
    for target, values in targets(summaries):
        if values:
            value = target.summarize(values)
            reached = f"{shown(value)} {target.unit}"
            spread = f"{shown(min(values))} – {shown(max(values))}"
            verdict = "met" if target.is_met(value) else "**missed**"
        else:
            reached, spread, verdict = "", "", "not measured"
        yield f"| {target.name} | {target.bound} | {reached} | {spread} | {verdict} |"
