"""What befalls several clusters and no single one; the rest is in `faults.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from .faults import inject
from .plan import Fault

if TYPE_CHECKING:
    from .cluster import Cluster
    from .clusters_world import ClustersWorld

Doing: TypeAlias = Callable[["Cluster", float], object]


def _die(cluster: Cluster, seconds: float) -> None:
    """Let all its harvesters die, or stop, while the application goes on."""
    end = cluster.time() + seconds
    cluster.dead_until = max(end, cluster.dead_until)
    cluster.promises.on_death()
    is_stopping = cluster.dice.random() < 0.3
    for node in cluster.nodes:
        node.stop(seconds) if is_stopping else node.crash(seconds)


def _die_with_the_next(cluster: Cluster, seconds: float) -> None:
    """Take the first rank of its takeover away, too, if another is left."""
    _die(cluster, seconds)
    clusters = cluster.ring.clusters
    if len(clusters) > 2:
        _die(clusters[(cluster.number + 1) % len(clusters)], seconds)


def _vanish(cluster: Cluster, seconds: float) -> None:
    """Let its database be away, too: what it has not sent on waits there."""
    _die(cluster, seconds)
    end = cluster.time() + seconds
    cluster.away_until["table"] = max(end, cluster.away_until["table"])


def _pause(cluster: Cluster, seconds: float) -> None:
    end = cluster.time() + seconds
    for link in cluster.ring.replication.some_of(cluster):
        link.paused_until = max(end, link.paused_until)


def _slow_down(cluster: Cluster, seconds: float) -> None:
    end = cluster.time() + seconds
    for link in cluster.ring.replication.some_of(cluster):
        link.slowed_until = max(end, link.slowed_until)
        link.slowed_by = max(seconds, link.slowed_by)


CLUSTER_FAULTS: Final[dict[str, Doing]] = {
    "death": _die,
    "deaths": _die_with_the_next,
    "loss": _vanish,
    "pause": _pause,
    "slow_link": _slow_down,
}
"""How to do each kind to a cluster, for so many seconds."""


def inject_into(world: ClustersWorld, fault: Fault) -> None:
    """Do one fault of the plan."""
    assert fault.cluster is not None, "planned by clusters_plan.py"
    cluster = world.clusters[fault.cluster]
    if fault.kind in CLUSTER_FAULTS:
        world.trace("FAULT", str(fault)[7:])
        world.count(fault.kind)
        CLUSTER_FAULTS[fault.kind](cluster, fault.duration)
        return
    # There is one Kafka.
    for each in world.clusters if fault.kind == "broker_outage" else [cluster]:
        number = fault.node % len(each.nodes) if fault.node >= 0 else fault.node
        inject(each, fault._replace(node=number))
