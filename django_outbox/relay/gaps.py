"""
Which rows a reader without marks has not been shown yet: position and gaps.

Ids are drawn in order and committed in any order, so behind the highest id
seen there are ids that nobody has seen: rolled back, or not committed yet.
Which it is, neither time nor a horizon of transaction ids tells: an id is
drawn before its transaction has one. But an INSERT locks the table (ROW
EXCLUSIVE) before it draws its id and keeps the lock to its end. So each gap
has its *open writers*, the transactions that held the lock after a page had shown
the gap. When the last of them is gone, one more page decides: the gap's row
is there, or it never will be.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

MAX_GAPS: Final = 50_000
"""Gaps at which the position waits; a page with so many takes 0.1 s."""


@dataclass(slots=True)
class Gap:
    """Ids that no page has shown, first and last."""

    low: int
    high: int
    open_writers: frozenset[str] | None = None
    """None until they were queried for this gap."""
    is_last_look: bool = False
    """All of them have ended: the next page decides."""


class Gaps:
    """
    The position and the gaps of one run, which starts before all ids.

    Args:
        id_increment: how far apart two ids are that are drawn one after the other.
    """

    def __init__(self, *, id_increment: int = 1) -> None:
        self._id_increment = id_increment
        self.position = 0
        """The highest id that a page has shown."""
        self._gaps: list[Gap] = []

    def __len__(self) -> int:
        return len(self._gaps)

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """First and last id of each gap."""
        return [(gap.low, gap.high) for gap in self._gaps]

    @property
    def is_full(self) -> bool:
        """
        Whether the position has to wait until gaps are closed.

        A gap that were dropped instead could belong to an open transaction, whose row
        would then be found after later rows of its key.
        """
        return len(self._gaps) >= MAX_GAPS

    @property
    def are_waiting(self) -> bool:
        """Whether some gap waits for its open writers, or has none yet."""
        return any(not gap.is_last_look for gap in self._gaps)

    def shown(self, ids: Sequence[int]) -> None:
        """
        Take a page's ids, in order.

        There may be more rows behind the last one: only an empty page is certain to
        have covered everything.
        """
        end = ids[-1] if ids else None
        self._gaps = [rest for gap in self._gaps for rest in self._left(gap, ids, end)]
        new = ids[bisect_right(ids, self.position) :]
        if not new:
            return
        if new[-1] - self.position != len(new) * self._id_increment:
            for before, after in pairwise((self.position, *new)):
                if after - before > self._id_increment:
                    self._gaps.append(Gap(before + 1, after - 1))
        self.position = new[-1]

    def found(self, ids: Sequence[int]) -> None:
        """
        Take ids, in order, that something else than a page has shown.

        They may be other clusters', which lie between this one's: whatever is
        left of a gap may hold an id of this cluster, however narrow it is.
        """
        self._gaps = [
            rest for gap in self._gaps for rest in self._split(gap, ids, id_increment=1)
        ]

    def note_writers(self, writers: frozenset[str], *, is_one_prepared: bool) -> None:
        """Take who writes now, as read after the last page."""
        for gap in self._gaps:
            if gap.open_writers is None:
                gap.open_writers = writers
            elif not is_one_prepared and gap.open_writers.isdisjoint(writers):
                gap.is_last_look = True

    def _left(self, gap: Gap, ids: Sequence[int], end: int | None) -> list[Gap]:
        """Return what a page has left of a gap: it showed these ids, up to `end`."""
        if end is not None and end < gap.low:
            return [gap]
        if not gap.is_last_look:
            return self._split(gap, ids, id_increment=self._id_increment)
        # What the page could show and did not will never be there.
        seen_to = gap.high if end is None else min(end, gap.high)
        return [replace(gap, low=seen_to + 1)] if seen_to < gap.high else []

    def _split(self, gap: Gap, ids: Sequence[int], *, id_increment: int) -> list[Gap]:
        """Take these ids out of a gap; keep what is as wide as an increment."""
        inside = ids[bisect_left(ids, gap.low) : bisect_right(ids, gap.high)]
        if not inside:
            return [gap]
        edges = (gap.low - 1, *inside, gap.high + 1)
        return [
            replace(gap, low=before + 1, high=after - 1)
            for before, after in pairwise(edges)
            if after - before > id_increment
        ]
