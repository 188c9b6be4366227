"""
The rank order of takeovers as SQL fragments.

A statement that uses them names the outbox table `o` and has the parameters that
`parameters` returns. The remainder is written as `mod()`, since a percent sign
begins a parameter for the driver.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, LiteralString

IS_OWN: Final[LiteralString] = "o.cluster_id = %(this_cluster)s::integer"
"""Records of this cluster: relayed at once, whatever their time."""

DISTANCE: Final[LiteralString] = """\
mod(
    mod(%(this_cluster)s::integer - o.cluster_id, %(clusters)s::integer)
    + %(clusters)s::integer,
    %(clusters)s::integer
)"""
"""Steps around the ring; the remainder of a negative number is negative in SQL."""

IS_UNKNOWN: Final[LiteralString] = """\
o.cluster_id NOT BETWEEN 0 AND %(clusters)s::integer - 1"""
"""Records of a cluster that is not in the settings."""

RANK: Final[LiteralString] = f"""\
{DISTANCE}
+ CASE WHEN {IS_UNKNOWN} THEN 1 ELSE 0 END"""
"""After how many maximum delays this cluster relays such a record."""

AGE: Final[LiteralString] = "extract(epoch FROM now() - o.create_time)"
"""Age in seconds by this database's clock, of a row with a finite time."""

DELAY: Final[LiteralString] = f"({RANK}) * %(maximum_delay)s::float8"
"""The age in seconds at which this cluster may relay such a record."""

ELIGIBLE: Final[LiteralString] = f"""\
CASE
    WHEN {IS_OWN} THEN true
    WHEN NOT isfinite(o.create_time) THEN {DISTANCE} = 0
    ELSE {AGE} >= {DELAY}
END"""
"""Whether this cluster may relay the record now."""


def parameters(
    this_cluster: int, count: int, maximum_delay: float
) -> Mapping[str, float]:
    """Return the parameters of these fragments."""
    return {
        "this_cluster": this_cluster,
        "clusters": count,
        "maximum_delay": maximum_delay,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Which rows one of several clusters reads, by kind of statement."""

    this_cluster: int
    """This cluster."""
    clusters: int
    maximum_delay: float
    """Seconds by which each rank waits longer than the one before."""
    source_cluster: int | None = None
    """Read only this cluster's rows, and only when they may be taken over. None:
    read the rows of this cluster."""
    takes_over: bool = True
    """Whether a repair scan finds rows of known clusters that may be taken over; it
    always finds those of unknown clusters."""

    @property
    def readable(self) -> LiteralString:
        """Rows that are read in order, by position and gaps."""
        if self.source_cluster is None:
            return IS_OWN
        return f"o.cluster_id = %(source_cluster)s::integer AND {ELIGIBLE}"

    @property
    def repairable(self) -> LiteralString:
        """Rows that a repair scan finds."""
        passed: LiteralString = "o.id <= %(position)s"
        if self.source_cluster is not None:
            return f"{self.readable} AND {passed}"
        taken = ELIGIBLE if self.takes_over else f"{IS_UNKNOWN} AND {ELIGIBLE}"
        return f"CASE WHEN {IS_OWN} THEN {passed} ELSE {taken} END"

    @property
    def parameters(self) -> Mapping[str, float | None]:
        """Parameters of both conditions."""
        ring = parameters(self.this_cluster, self.clusters, self.maximum_delay)
        return {**ring, "source_cluster": self.source_cluster}
