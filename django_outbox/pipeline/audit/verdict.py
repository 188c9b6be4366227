"""
Which promises hold, are broken, or could not be judged.

`judge()` turns a report into a verdict. A promise that nothing was known about
is "not judged", never "ok".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from .latency import percentile
from .report import Report

OK, BROKEN, NOT_JUDGED = "ok", "broken", "not judged"
"""States of a promise, and of the verdict."""

TOO_MANY_COPIES: Final = "too many copies"
"""State of a verdict whose only fault is the number of duplicates."""

EXIT_BROKEN: Final = 3
EXIT_NOT_JUDGED: Final = 4
EXIT_CODES: Final = {
    OK: 0,
    BROKEN: EXIT_BROKEN,
    NOT_JUDGED: EXIT_NOT_JUDGED,
    TOO_MANY_COPIES: 4,
}
"""Exit codes by the state of the verdict."""

FAULTS: Final = {
    "loss": ("lost", "unexpected"),
    "copies": (),
    "order": ("disorder", "split_keys"),
    "content": ("altered",),
    "latency": (),
    "lake": ("lake_lost", "lake_copies", "overdue", "latest_copies", "latest_stale"),
}
"""The promises, each with the counts that must be 0."""

_PRAISE: Final = {
    "loss": "nothing lost",
    "content": "nothing altered",
    "order": "nothing out of order",
}
"""What the headline says of promises that hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """One promise, and what the audit says about it."""

    name: str
    """A key of `FAULTS`."""
    state: str
    """`OK`, `BROKEN` or `NOT_JUDGED`."""
    messages: int
    """Number of messages that were judged."""
    note: str
    """Why it was not judged, what broke it, or what was measured."""

    def __str__(self) -> str:
        """Return one line for a terminal."""
        messages = f"{self.messages:,} messages" if self.messages else ""
        details = "; ".join(filter(None, (messages, self.note)))
        return f"{self.name}: {self.state}" + (f" ({details})" if details else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The promises, and their sum."""

    state: str
    """A key of `EXIT_CODES`."""
    headline: str
    """The verdict in one line."""
    promises: tuple[Promise, ...]

    @property
    def exit_code(self) -> int:
        """Return 0; 3 if broken; 4 if nothing was judged, or for too many copies."""
        return EXIT_CODES[self.state]

    @property
    def is_complete(self) -> bool:
        """Whether every promise was judged."""
        return all(promise.state != NOT_JUDGED for promise in self.promises)


def judge(report: Report, *, max_copies: int | None = None) -> Verdict:
    """Judge a report; with `max_copies`, more duplicates break the promise `copies`."""
    promises = tuple(_promises(report, max_copies))
    states = {promise.name: promise.state for promise in promises}
    broken = [name for name, state in states.items() if state == BROKEN]
    if broken and broken != ["copies"]:
        state = BROKEN
        found = (n for names in FAULTS.values() for n in names if report.total(n))
        headline = f"Broken: {', '.join(found)}"
    elif broken:
        state, headline = TOO_MANY_COPIES, f"More than {max_copies} duplicates"
    elif set(states.values()) == {NOT_JUDGED}:
        state, headline = NOT_JUDGED, "Nothing judged"
    else:
        state = OK
        praise = [text for name, text in _PRAISE.items() if states[name] == OK]
        headline = (", ".join(praise) or "no promise broken").capitalize()
    gaps = [f"{p.name} ({p.note})" for p in promises if p.state == NOT_JUDGED]
    if gaps and state != NOT_JUDGED:
        headline += f"; not judged: {', '.join(gaps)}"
    elif gaps:
        headline += ": no messages"
    return Verdict(state=state, headline=headline, promises=promises)


def _promises(report: Report, max_copies: int | None) -> Iterator[Promise]:
    messages = report.total("messages")
    nothing = "" if messages else "no messages"
    latencies = report.whole().latencies
    copies, behind = report.total("copies"), report.total("behind")
    unknown = report.total("loss_unknown")
    yield _promise(
        report,
        "loss",
        judged=report.total("loss_judged"),
        gap=(nothing or "no archive") if report.compared.databases else "no database",
        note=f"{unknown:,} more are not in the archive's range" if unknown else "",
    )
    if max_copies is not None and copies > max_copies:
        note = f"{copies:,} copies, {max_copies:,} allowed"
        yield Promise(name="copies", state=BROKEN, messages=messages, note=note)
    else:
        note = f"{copies:,} copies" if copies else ""
        yield _promise(report, "copies", judged=messages, gap=nothing, note=note)
    for name, judged, gap in (
        ("order", "keyed", "no keys"),
        ("content", "content_judged", "nothing to compare with"),
    ):
        count = report.total(judged)
        yield _promise(report, name, judged=count, gap=nothing or gap)
    p50, p99 = (percentile(latencies, share) for share in (0.5, 0.99))
    yield _promise(
        report,
        "latency",
        judged=latencies.total(),
        gap=nothing or "no creation time",
        note=f"measured, without a limit: p50 {p50:,.0f} ms, p99 {p99:,.0f} ms"
        if p50 is not None and p99 is not None
        else "",
    )
    yield _promise(
        report,
        "lake",
        judged=report.total("due"),
        gap=nothing or "refine has not read any of them",
        note=f"{behind:,} more are not yet in it" if behind else "",
    )


def _promise(
    report: Report, name: str, *, judged: int, gap: str, note: str = ""
) -> Promise:
    """Judge one promise; `gap` says why if no message was judged."""
    found = [f"{n} {report.total(n):,}" for n in FAULTS[name] if report.total(n)]
    if found:
        return Promise(name=name, state=BROKEN, messages=judged, note=", ".join(found))
    if not judged:
        return Promise(name=name, state=NOT_JUDGED, messages=0, note=gap)
    return Promise(name=name, state=OK, messages=judged, note=note)
