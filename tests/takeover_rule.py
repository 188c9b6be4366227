"""
Which rows a cluster may relay: a model of what `postgres/takeover_sql.py` says in SQL.

One table of cases tests both, and the simulator runs this one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

from django_outbox.message.record import OrderingKey
from django_outbox.relay.takeover import delay, distance


class Aged(NamedTuple):
    """A record, as far as a takeover depends on it."""

    id: int
    origin: int
    """The record's cluster."""
    ordering_key: OrderingKey
    age: float
    """Seconds by the clock of the database that answers."""


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
