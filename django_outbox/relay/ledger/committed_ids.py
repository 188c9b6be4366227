"""
Which ids are in the log already, sent by any cluster: ranges in the ledger.

Several clusters relay the records of one origin in turn, and the purge of one
reaches the tables of the others later, or has been lost on its way. So where
there are several, the ledger also says of which ids the records were committed
under it. What is found in a table and is among them only has to be purged.

A range holds the ids low, low + step, … high. It also holds the newest time of
a record of its own: after a failover to a standby that lagged behind, ids are
given again, to records that are younger.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from ...message.record import Record
from ...settings.rules import MOST_CLUSTERS

MAX_RANGES: Final = 1000
"""Ranges kept, those of the highest ids. One ends where an id was never committed,
or is committed later."""


def row_of(record: Record) -> tuple[int, str]:
    """
    Name the row of a record, also where ids are given again.

    A message that is sent again on purpose is another row under its message id.
    """
    return record.id, record.message_id


class IdRange(NamedTuple):
    """Ids of records that were committed."""

    low: int
    high: int
    step: int
    """How far apart they are: the number of clusters when they were drawn."""
    newest: int
    """The latest time of creation, microseconds since the epoch."""

    @property
    def series(self) -> tuple[int, int]:
        """Step and remainder, which ranges must share to be merged."""
        return self.step, self.low % self.step


def extended(
    ranges: Sequence[IdRange], records: Sequence[Record], *, step: int
) -> Sequence[IdRange]:
    """
    Return the ranges with these records, ranges that touch made one.

    Ids of a range that come again were given again, and nothing is known of the
    rest of it any more: then these records alone are the ranges.
    """
    runs = _runs(records, step)
    merged: list[IdRange] = []
    last_of: dict[tuple[int, int], int] = {}
    for one in sorted((*ranges, *runs)):
        at = last_of.get(one.series)
        if ranges and at is not None and one.low <= merged[at].high:
            return extended((), records, step=step)
        if at is not None and one.low <= merged[at].high + one.step:
            low, high, _, newest = merged[at]
            high, newest = max(high, one.high), max(newest, one.newest)
            merged[at] = IdRange(low, high, one.step, newest)
        else:
            last_of[one.series] = len(merged)
            merged.append(one)
    return tuple(merged[-MAX_RANGES:])


def _runs(records: Sequence[Record], step: int) -> list[IdRange]:
    """Make ranges of records, few when they come in the order of their ids."""
    if not records:
        return []
    ids = [record.id for record in records]
    times = [int(record.created_at) for record in records]
    cuts = [n for n, (a, b) in enumerate(pairwise(ids), 1) if b - a != step]
    return [
        IdRange(ids[begin], ids[end - 1], step, max(times[begin:end]))
        for begin, end in pairwise((0, *cuts, len(ids)))
    ]


def fault_of(ranges: Sequence[IdRange]) -> str:
    """Return why `extended()` cannot have made these ranges; empty if it can."""
    highest: dict[tuple[int, int], int] = {}
    for before, one in pairwise((None, *ranges)):
        assert one is not None, "only the first has none before it"
        if not 2 <= one.step <= MOST_CLUSTERS:
            return f"a range has ids {one.step} apart"
        if one.high < one.low or (one.high - one.low) % one.step:
            return f"a range ends at {one.high} and begins at {one.low}"
        if before is not None and one.low < before.low:
            return f"a range from {one.low} follows one from {before.low}"
        if one.low <= highest.get(one.series, one.low - 1):
            return f"two ranges hold the id {one.low}"
        highest[one.series] = one.high
    return ""


class CommittedIds:
    """Tells whether a record that was found is in some ranges, or listed."""

    def __init__(
        self, ranges: Iterable[IdRange] = (), listed: Iterable[Record] = ()
    ) -> None:
        self._listed = {row_of(record) for record in listed}
        self._series: dict[tuple[int, int], list[IdRange]] = {}
        for one in sorted(ranges):
            self._series.setdefault(one.series, []).append(one)
        self._steps = {step for step, _ in self._series}

    def among(self, records: Iterable[Record]) -> list[Record]:
        """Return those of the records that are."""
        return [record for record in records if record in self]

    def __bool__(self) -> bool:
        return bool(self._series or self._listed)

    def __contains__(self, record: Record) -> bool:
        return row_of(record) in self._listed or any(
            self._is_in(record, step) for step in self._steps
        )

    def _is_in(self, record: Record, step: int) -> bool:
        ranges = self._series.get((step, record.id % step), ())
        at = bisect_right(ranges, record.id, key=lambda one: one.low)
        if not at:
            return False
        found = ranges[at - 1]
        return record.id <= found.high and int(record.created_at) <= found.newest
