"""
The rank order of takeovers as SQL fragments.

A statement that uses them names the outbox table `o` and has the parameters that
`parameters` returns; `{table}` becomes the name of the table. The remainder is
written as `mod()`, since a percent sign begins a parameter for the driver.
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

IS_DUE: Final[LiteralString] = f"""\
CASE
    WHEN {IS_OWN} THEN true
    WHEN NOT isfinite(o.create_time) THEN {DISTANCE} = 0
    ELSE {AGE} >= {DELAY}
END"""
"""Whether this cluster may relay the record now, as far as its own time says."""

_KEY: Final[LiteralString] = (
    "concat_ws(chr(10), o.cluster_id, o.kafka_topic, o.kafka_key)"
)
"""Source cluster and key as one text: neither of the first two has a line break."""

IS_FIRST: Final[LiteralString] = f"""\
o.id < coalesce(
    (
        (
            SELECT jsonb_object_agg(waiting.key, waiting.id)
            FROM (
                SELECT {_KEY} AS key, min(o.id) AS id
                FROM {{table}} AS o
                WHERE NOT ({IS_DUE})
                GROUP BY 1
            ) AS waiting
        ) ->> {_KEY}
    )::bigint,
    o.id + 1
)"""  # noqa: S608 (constants only)
"""
Whether no earlier record of its source cluster and key has to wait.

A time is that of the start of a transaction, so it does not grow with the id. The
server builds the object at most once in a statement, and only when some record is due.
For a join it may choose a plan that compares each record with all others.
"""


def parameters(
    this_cluster: int, clusters: int, maximum_delay: float
) -> Mapping[str, float]:
    """Return the parameters of these fragments."""
    return {
        "this_cluster": this_cluster,
        "clusters": clusters,
        "maximum_delay": maximum_delay,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Which rows one of several clusters reads, by kind of statement."""

    this_cluster: int
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
    def id_increment(self) -> int:
        """How far apart two ids are that are drawn one after the other."""
        return self.clusters

    @property
    def readable(self) -> LiteralString:
        """Rows that are read in order, by position and gaps."""
        if self.source_cluster is None:
            return IS_OWN
        return (
            "o.cluster_id = %(source_cluster)s::integer"
            f" AND CASE WHEN {IS_DUE} THEN {IS_FIRST} ELSE false END"
        )

    @property
    def repairable(self) -> LiteralString:
        """Rows that a repair scan finds."""
        passed: LiteralString = "o.id <= %(position)s"
        if self.source_cluster is not None:
            return f"{self.readable} AND {passed}"
        taken = IS_DUE if self.takes_over else f"{IS_UNKNOWN} AND {IS_DUE}"
        return (
            f"CASE WHEN {IS_OWN} THEN {passed}"
            f" WHEN {taken} THEN {IS_FIRST} ELSE false END"
        )

    @property
    def parameters(self) -> Mapping[str, float | None]:
        """Parameters of both conditions."""
        ring = parameters(self.this_cluster, self.clusters, self.maximum_delay)
        return {**ring, "source_cluster": self.source_cluster}
