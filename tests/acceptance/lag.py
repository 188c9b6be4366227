"""
How long records take from their commit to the log, over a whole test.

Both ends are the clock of this machine: a writer notes when its commit has returned,
and the topics of audited tests have the time at which the broker appended a record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from statistics import quantiles
from typing import Final, TypeAlias

import pytest

from .auditing import Delivery
from .writing import Ledger

LATE: Final = 0.5
"""Seconds by which a record lags when there is a backlog before it."""

QUIET: Final = 1.0
"""Seconds of commits without a late record: the backlog is gone."""

PROPERTY: Final = "commit to log"
"""Of a test's report: how many records, and p50 and p99 in milliseconds."""


class Lags:
    """The lags of all committed records, by their first deliveries."""

    def __init__(self, ledger: Ledger, sent: Iterable[Delivery]) -> None:
        appended: dict[str, float] = {}
        for delivery in sent:
            before = appended.get(delivery.message_id, delivery.appended_at)
            appended[delivery.message_id] = min(before, delivery.appended_at)
        self._times = sorted(
            (committed_at, appended[message_id])
            for message_id, committed_at in ledger.committed_at.items()
        )
        self.seconds = [max(0.0, end - begin) for begin, end in self._times]
        """In the order of the commits."""

    def percentile(self, number: int) -> float:
        """Return a percentile, in seconds."""
        return quantiles(self.seconds, n=100, method="inclusive")[number - 1]

    def longest_stop(self) -> tuple[float, float]:
        """
        Return the longest time in which nothing came into the log, and what followed.

        Both in seconds: the stop, from the first commit on or between two records in
        the log, and the time from its end until no record was late any more.
        """
        moments = [self._times[0][0], *sorted(end for _, end in self._times)]
        stop, resumed = max((after - at, after) for at, after in pairwise(moments))
        caught_up = resumed
        for committed, appended in self._times:
            if committed > caught_up + QUIET:
                break
            if appended > resumed and appended - committed > LATE:
                caught_up = max(caught_up, appended)
        return stop, caught_up - resumed

    def properties(self) -> tuple[str, object]:
        """Return what the report of a test tells of it."""
        p50, p99 = (1000 * self.percentile(number) for number in (50, 99))
        return PROPERTY, [len(self.seconds), p50, p99]


Measure: TypeAlias = Callable[[Ledger, Sequence[Delivery]], Lags]
"""Measures the lags, and tells them in the run's summary."""


def summarize(terminal: pytest.TerminalReporter) -> None:
    """Print what the tests of this run have measured, if any has."""
    rows = [
        (value, report.nodeid)
        for report in terminal.getreports("passed")
        if report.when == "call"
        for name, value in report.user_properties
        if name == PROPERTY
    ]
    if not rows:
        return
    terminal.section(f"{PROPERTY} (milliseconds)")
    terminal.write_line(f"{'records':>8} {'p50':>8} {'p99':>8}  test")
    for (records, p50, p99), name in rows:
        terminal.write_line(f"{records:>8,} {p50:>8,.1f} {p99:>8,.1f}  {name}")
