"""
Which cluster relays whose records, and when: the rank order of a takeover.

Several active clusters replicate their outboxes to each other. Each relays its
own records at once, and another's only when they are so old that their origin
must have failed. The clusters stand in a ring; the one at distance *d* after
the origin waits *d* times MAXIMUM_DELAY, so that one of them takes over, and
the next one only when that one is gone, too::

    origin 1 of 4 clusters      0 ◀── 3 ◀── 2 ◀── 1
    relays after               3 D   2 D   1 D   at once

Two kinds of rows stand outside this order, and neither is lost:

- Rows of an origin that these settings do not know (a cluster that was
  removed, or one that is being added) have a *home*, the cluster `origin mod
  count`. Nobody relays them at once, since their origin may still do so: the
  home waits one MAXIMUM_DELAY, the next cluster two, and so on.
- Rows without a finite create_time (plain SQL may write 'infinity') have no
  age, and nobody could tell when to take them over. Only their home relays
  them, at once; for an origin that is known this is the origin itself.

A record waits behind all earlier ones of its origin and key: their ages need not be
in the order of their ids.

Ages are those of the database that answers: its clock now, less create_time,
which the origin's clock has written. A clock that is ahead of the origin's by
*s* seconds shortens the delay by *s*; one that is behind lengthens it.

Plain functions, without a clock and a driver: they tell people who takes over, and
when. `takeover_sql` applies the rule to rows; one table of cases tests both.
"""

from __future__ import annotations

from operator import itemgetter


def distance(origin: int, this_cluster: int, count: int) -> int:
    """Return how many steps round the ring this cluster is from a record's origin."""
    return (this_cluster - origin) % count


def rank(origin: int, this_cluster: int, count: int) -> int:
    """Return how many delays this cluster waits: 0 for its own, then 1, 2, …."""
    is_unknown = not 0 <= origin < count
    return distance(origin, this_cluster, count) + is_unknown


def delay(origin: int, *, this_cluster: int, count: int, maximum_delay: float) -> float:
    """Return the age in seconds from which this cluster relays such a record."""
    return rank(origin, this_cluster, count) * maximum_delay


def successors(
    origin: int, *, count: int, maximum_delay: float
) -> list[tuple[int, float]]:
    """Return who else would relay an origin's records, with its delay, in turn."""
    turns = [
        (
            cluster,
            delay(
                origin, this_cluster=cluster, count=count, maximum_delay=maximum_delay
            ),
        )
        for cluster in range(count)
        if cluster != origin
    ]
    return sorted(turns, key=itemgetter(1))
