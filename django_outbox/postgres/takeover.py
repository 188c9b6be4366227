"""
The rank order of `relay/takeover.py` as SQL, to be put into a statement.

The statement names the outbox table `o` and has the parameters that
`parameters` returns. The remainder is written as `mod()`: the driver takes a
percent sign for the beginning of a parameter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, LiteralString

HERE: Final[LiteralString] = "o.cluster_id = %(here)s::integer"
"""The cluster's own records: at once, whatever their time."""

DISTANCE: Final[LiteralString] = """\
mod(
    mod(%(here)s::integer - o.cluster_id, %(clusters)s::integer)
    + %(clusters)s::integer,
    %(clusters)s::integer
)"""
"""Steps round the ring; the remainder of a negative number is negative in SQL."""

RANK: Final[LiteralString] = f"""\
{DISTANCE}
+ CASE WHEN o.cluster_id BETWEEN 0 AND %(clusters)s::integer - 1 THEN 0 ELSE 1 END"""
"""How many delays this cluster waits for such a record."""

AGE: Final[LiteralString] = "extract(epoch FROM now() - o.create_time)"
"""Seconds by this database's clock, of a row whose time is finite."""

DELAY: Final[LiteralString] = f"({RANK}) * %(maximum_delay)s::float8"
"""The age in seconds from which this cluster relays such a record."""

ELIGIBLE: Final[LiteralString] = f"""\
CASE
    WHEN {HERE} THEN true
    WHEN NOT isfinite(o.create_time) THEN {DISTANCE} = 0
    ELSE {AGE} >= {DELAY}
END"""
"""Whether this cluster may relay the record now."""


def parameters(here: int, count: int, maximum_delay: float) -> Mapping[str, float]:
    """Return the parameters of these fragments."""
    return {"here": here, "clusters": count, "maximum_delay": maximum_delay}
