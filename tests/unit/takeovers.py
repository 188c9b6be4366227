"""One table of cases for the rank order of a takeover, in Python and in SQL."""

from __future__ import annotations

from typing import Final, NamedTuple

from tests.takeover_rule import Aged

INFINITY: Final = float("inf")


class Case(NamedTuple):
    """A record of some age, and who may relay it with MAXIMUM_DELAY = 10."""

    count: int  # type: ignore[assignment]
    origin: int
    age: float
    """Seconds; inf: create_time is '-infinity'; -inf: it is 'infinity'."""
    relayed_by: set[int]
    """Those clusters of 0..count-1."""


CASES: Final = [
    # One cluster relays all that is its own.
    Case(1, 0, 0.0, {0}),
    Case(1, 0, -3600.0, {0}),
    Case(1, 0, INFINITY, {0}),
    Case(1, 0, -INFINITY, {0}),
    # The ranks of three, one after the other, each at its second.
    Case(3, 0, 0.0, {0}),
    Case(3, 0, 9.999999, {0}),
    Case(3, 0, 10.0, {0, 1}),
    Case(3, 0, 19.999999, {0, 1}),
    Case(3, 0, 20.0, {0, 1, 2}),
    Case(3, 0, 1_000_000_000.0, {0, 1, 2}),
    # Round the ring.
    Case(3, 1, 10.0, {1, 2}),
    Case(3, 1, 20.0, {0, 1, 2}),
    Case(3, 2, 10.0, {0, 2}),
    Case(3, 2, 19.0, {0, 2}),
    Case(2, 1, 9.0, {1}),
    Case(2, 1, 10.0, {0, 1}),
    Case(32, 31, 10.0, {0, 31}),
    Case(32, 31, 30.0, {0, 1, 2, 31}),
    # The origin's clock is ahead: its own, and nobody else's.
    Case(3, 1, -0.000001, {1}),
    Case(3, 1, -3600.0, {1}),
    # No age: the origin, for ever.
    Case(3, 1, INFINITY, {1}),
    Case(3, 1, -INFINITY, {1}),
    # A cluster that these settings do not know: its home is one delay late.
    Case(3, 3, 0.0, set()),
    Case(3, 3, 9.0, set()),
    Case(3, 3, 10.0, {0}),
    Case(3, 3, 20.0, {0, 1}),
    Case(3, 3, 30.0, {0, 1, 2}),
    Case(3, 4, 10.0, {1}),
    Case(2, 2, 10.0, {0}),
    Case(2, 3, 10.0, {1}),
    Case(1, 1, 9.0, set()),
    Case(1, 1, 10.0, {0}),
    Case(3, -1, 10.0, {2}),
    Case(3, -4, 20.0, {0, 2}),
    Case(32, 32767, 10.0, {31}),
    Case(32, -32768, 10.0, {0}),
    # Unknown and without an age: its home at once, so that it is not lost.
    Case(3, 4, INFINITY, {1}),
    Case(3, 4, -INFINITY, {1}),
    Case(3, -1, INFINITY, {2}),
]


K, OTHER = ("t", "k"), ("t", "other")

IN_ORDER: Final[list[tuple[list[Aged], list[int]]]] = [
    ([], []),
    # Old and young, in the order of the ids.
    ([Aged(3, 0, K, 20.0), Aged(6, 0, K, 5.0)], [3]),
    # The writer of the higher id began its transaction first.
    ([Aged(3, 0, K, 5.0), Aged(6, 0, K, 20.0)], []),
    ([Aged(3, 0, K, 5.0), Aged(6, 0, K, 20.0), Aged(9, 0, K, 30.0)], []),
    ([Aged(3, 0, K, 10.0), Aged(6, 0, K, 20.0)], [3, 6]),
    # Other keys, other topics and other clusters do not wait.
    ([Aged(3, 0, K, 5.0), Aged(6, 0, OTHER, 20.0)], [6]),
    ([Aged(3, 0, K, 5.0), Aged(6, 0, ("u", "k"), 20.0)], [6]),
    ([Aged(3, 0, K, 5.0), Aged(4, 1, K, 0.0), Aged(5, 2, K, 20.0)], [4, 5]),
    # Own records are no obstacle, and meet none.
    ([Aged(4, 1, K, 0.0), Aged(6, 0, K, 10.0)], [4, 6]),
    # A record without a time belongs to its own cluster, and so do those behind it.
    ([Aged(3, 0, K, -INFINITY), Aged(6, 0, K, 20.0)], []),
    ([Aged(6, 0, K, 20.0), Aged(9, 0, K, INFINITY)], [6]),
    # Clusters that the settings do not know.
    ([Aged(3, 4, K, INFINITY), Aged(6, 4, K, 10.0)], [3, 6]),
    ([Aged(3, 4, K, 5.0), Aged(6, 4, K, 20.0)], []),
]
"""Records, and the ids of those that cluster 1 of 3 may relay, MAXIMUM_DELAY = 10."""
