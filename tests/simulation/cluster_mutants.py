"""Deliberate bugs of several clusters; see `mutants.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from django_outbox.message.record import Record
from django_outbox.relay import takeover
from django_outbox.relay.blocked_key import BlockedKeys
from django_outbox.relay.engine import Engine
from django_outbox.relay.gaps import Gaps
from django_outbox.relay.waiting_records import Waiting
from tests import takeover_rule

from .cluster import Cluster
from .cluster_table import ClusterConnection, ClusterTable
from .mutant import Mutant, named
from .replication import Replication
from .table import Row

_found = Engine.found
_remove = Waiting.remove
_publish = Replication.publish
_may_take = ClusterTable.may_take


# Whose turn it is.


def rank_is_ignored(origin: int, this_cluster: int, count: int) -> int:
    """Let all others take over at once after one delay."""
    return int(origin != this_cluster)


def only_the_next_one_takes_over(self: ClusterTable, record: Record) -> bool:
    """Do nothing when that one is gone, too."""
    cluster = self._cluster
    rank = (cluster.number - record.cluster_id) % cluster.plan.clusters
    return rank <= 1 and _may_take(self, record)


def origin_always_comes_back(self: ClusterTable, record: Record) -> bool:
    """Take nothing over."""
    return record.cluster_id == self._cluster.number


def each_record_by_its_own_time(
    records: Iterable[takeover_rule.Aged], **ring: Any
) -> list[takeover_rule.Aged]:
    """Take a record over before an earlier one of its key."""
    return [r for r in records if takeover_rule.is_due(r.age, r.origin, **ring)]


def age_by_another_clock(self: ClusterTable, record: Record) -> float:
    """Ask somebody else than the database for the time."""
    return self._cluster.time() - float(record.created_at)


# Which rows are found, and how.


def own_rows_come_by_the_sweep(self: ClusterTable, record: Record) -> bool:
    """Look for own rows as for those of others."""
    return False


def foreign_rows_come_by_position(
    self: ClusterTable, record: Record, position: int
) -> bool:
    """Compare others' ids with the position in this cluster's own."""
    return record.id <= position and self.may_take(record)


def ids_in_strides_of_another_ring(self: ClusterConnection) -> int:
    """Take a missing own id for the next cluster's."""
    return 2 * int(self._world.plan.clusters)


def foreign_ids_close_gaps(self: Gaps, ids: Sequence[int]) -> None:
    """Take what is left of a gap beside a foreign id for too narrow."""
    self._gaps = [
        rest
        for gap in self._gaps
        for rest in self._split(gap, ids, id_increment=self._id_increment)
    ]


def foreign_failure_hides_own_rows(
    self: Waiting, is_wanted: Callable[[Record], bool]
) -> list[Record]:
    """Look for a key's rows from the failed id on, although it is another's."""
    blocked: BlockedKeys = is_wanted.__self__  # type: ignore[attr-defined]
    return _remove(self, lambda record: record.ordering_key in blocked)


def rows_shown_meanwhile_are_forgotten(self: Engine, records: Sequence[Record]) -> None:
    """Pass over what is shown of a blocked key, and do not look for it again."""
    lows = {key: blocked.low for key, blocked in self.blocked.items()}
    _found(self, records)
    for key, blocked in self.blocked.items():
        blocked.low = lows[key]


# The tables.


def ids_of_all_clusters_are_drawn(self: ClusterTable) -> int:
    """Count ids one by one."""
    self._last_id += 1
    return self._last_id


def purges_stay_at_home(
    self: Replication, source: Cluster, rows: Iterable[Row], *, is_insert: bool
) -> None:
    """Replicate inserts only."""
    if is_insert:
        _publish(self, source, rows, is_insert=True)


MUTANTS: Final = named(
    mutant._replace(delivery="several-clusters")
    for mutant in (
        Mutant(takeover, "rank", rank_is_ignored, "death"),
        Mutant(ClusterTable, "may_take", only_the_next_one_takes_over, "deaths"),
        Mutant(ClusterTable, "may_take", origin_always_comes_back, "death"),
        Mutant(takeover_rule, "eligible", each_record_by_its_own_time, "times"),
        Mutant(ClusterTable, "age", age_by_another_clock, "clocks"),
        Mutant(ClusterTable, "is_mine", own_rows_come_by_the_sweep, "death"),
        Mutant(ClusterTable, "is_left", foreign_rows_come_by_position, "deaths"),
        Mutant(
            ClusterConnection,
            "id_increment",
            ids_in_strides_of_another_ring,
            "graceful",
            is_property=True,
        ),
        Mutant(Gaps, "found", foreign_ids_close_gaps, "deaths"),
        Mutant(Waiting, "remove", foreign_failure_hides_own_rows, "poison"),
        Mutant(Engine, "found", rows_shown_meanwhile_are_forgotten, "poison"),
        Mutant(ClusterTable, "draw_id", ids_of_all_clusters_are_drawn, "graceful"),
        Mutant(Replication, "publish", purges_stay_at_home, "graceful"),
    )
)
"""By name."""
