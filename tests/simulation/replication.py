"""
How the tables of several clusters replicate: one subscription for each pair.

What was written to a table itself, and not what came from others, travels to
each other one in the order of the commits (`origin = none`). Inserts and
deletes travel, updates do not. A delete that finds nothing is passed over, as
PostgreSQL does it, also when its insert is only under way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from .table import Row

if TYPE_CHECKING:
    from .cluster import Cluster
    from .clusters_world import ClustersWorld

ROUNDING: Final = 1e-9
"""Seconds."""


class _Change(NamedTuple):
    due_at: float
    row: Row
    is_insert: bool


class Link:
    """One table's subscription to another."""

    def __init__(self, source: Cluster, target: Cluster) -> None:
        self.source = source
        self.target = target
        self.paused_until = 0.0
        self.slowed_until = 0.0
        self.slowed_by = 0.0
        self._changes: deque[_Change] = deque()
        self._due_at = 0.0

    @property
    def is_behind(self) -> bool:
        return bool(self._changes)

    def publish(self, row: Row, *, is_insert: bool) -> None:
        """Send a change on; it comes after all that were sent before."""
        world = self.source
        lag = world.dice.uniform(0.001, world.plan.lag)
        if world.time() < self.slowed_until:
            world.count("change late")
            lag += world.dice.uniform(0.0, self.slowed_by)
        self._due_at = max(self._due_at, world.time() + lag)
        self._changes.append(_Change(self._due_at, replace(row), is_insert))
        world.time.after(self._due_at - world.time(), self.apply)

    def apply(self) -> None:
        """Bring the target up to date, as far as it can be."""
        time = self.source.time
        blocked_until = max(
            self.paused_until,
            self.source.away_until["table"],
            self.target.away_until["table"],
            self.target.away_until["writes"],
        )
        if self._changes and (wait := blocked_until - time()) > 0:
            time.after(wait, self.apply)
            return
        while self._changes and self._changes[0].due_at <= time() + ROUNDING:
            _, row, is_insert = self._changes.popleft()
            if self.source.is_tracing:
                what = "gets" if is_insert else "deletes"
                name = f"{self.source.number} to {self.target.number}"
                self.source.trace(name, f"{what} {row.record.id}")
            if is_insert:
                self.target.table.insert_of_another(row)
            else:
                self.target.table.delete_of_another(row.record.id)


class Replication:
    """All subscriptions."""

    def __init__(self, world: ClustersWorld) -> None:
        clusters = world.clusters
        self.links = [Link(a, b) for a in clusters for b in clusters if a is not b]

    @property
    def is_behind(self) -> bool:
        """Whether something is under way."""
        return any(link.is_behind for link in self.links)

    def publish(self, source: Cluster, rows: Iterable[Row], *, is_insert: bool) -> None:
        """Send what was written in one cluster to all others."""
        for row in rows:
            for link in self.links:
                if link.source is source:
                    link.publish(row, is_insert=is_insert)

    def some_of(self, cluster: Cluster) -> Iterator[Link]:
        """Draw what an accident befalls: one link, or all that leave or arrive."""
        dice = cluster.dice
        mine = [k for k in self.links if cluster in (k.source, k.target)]
        match dice.randrange(4):
            case 0:
                return iter([dice.choice(mine)])
            case 1:
                return (link for link in mine if link.source is cluster)
            case 2:
                return (link for link in mine if link.target is cluster)
        return iter(mine)

    def mend(self) -> None:
        """Let everything flow again."""
        for link in self.links:
            link.slowed_until = link.paused_until = 0.0
            link.apply()
