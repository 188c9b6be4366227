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

Plain functions, without a clock and a driver. The rule that runs is `takeover_sql`;
this is its model: one table of cases tests both, and the simulator runs it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from operator import attrgetter, itemgetter
from typing import NamedTuple

from ..message.record import OrderingKey


class Aged(NamedTuple):
    """A record, as far as a takeover depends on it."""

    id: int
    origin: int
    """The record's cluster."""
    ordering_key: OrderingKey
    age: float
    """Seconds by the clock of the database that answers."""


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


def is_due(
    age: float, origin: int, *, this_cluster: int, count: int, maximum_delay: float
) -> bool:
    """
    Whether this cluster may relay a record now, as far as its own time says.

    Args:
        age: seconds by the clock of the database that answers; negative when
            the origin's clock is ahead, not finite when the row has no time.
        origin: the record's cluster.
        this_cluster: this cluster.
        count: clusters in all.
        maximum_delay: seconds that each rank waits longer than the one before.
    """
    if origin == this_cluster:
        return True
    if not math.isfinite(age):
        return distance(origin, this_cluster, count) == 0
    return age >= delay(
        origin, this_cluster=this_cluster, count=count, maximum_delay=maximum_delay
    )


def eligible(
    records: Iterable[Aged], *, this_cluster: int, count: int, maximum_delay: float
) -> list[Aged]:
    """
    Return the records that this cluster may relay now, in the order of their ids.

    A record is eligible only together with all earlier ones of its source cluster and
    key: a time is that of the start of a transaction and does not grow with the id.
    """
    found: list[Aged] = []
    waiting: set[tuple[int, OrderingKey]] = set()
    for record in sorted(records, key=attrgetter("id")):
        source = (record.origin, record.ordering_key)
        if source in waiting:
            continue
        if is_due(
            record.age,
            record.origin,
            this_cluster=this_cluster,
            count=count,
            maximum_delay=maximum_delay,
        ):
            found.append(record)
        else:
            waiting.add(source)
    return found


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
