"""The clusters' part of `manage.py outbox status`: who relays what, and when."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..conf import settings
from ..message.record import ClusterBacklog
from ..models import OutboxRecord
from ..relay.takeover import distance, successors
from ..wording import duration


def report(alias: str) -> dict[str, Any]:
    """Return the backlog of each cluster in a database, and its next takeovers."""
    found = {row.origin: row for row in OutboxRecord.objects.using(alias).waiting()}
    for origin in range(settings.CLUSTERS_COUNT):
        found.setdefault(origin, ClusterBacklog(origin, 0, None))
    return {
        "here": settings.CLUSTER_ID,
        "count": settings.CLUSTERS_COUNT,
        "maximum_delay": settings.MAXIMUM_DELAY,
        "origins": [_origin(found[origin]) for origin in sorted(found)],
    }


def describe(clusters: dict[str, Any]) -> Iterator[str]:
    """Describe the report in lines."""
    this_cluster = clusters["here"]
    yield f"cluster  {this_cluster} of {clusters['count']}"
    for origin in clusters["origins"]:
        own = " (own)" if origin["origin"] == this_cluster else ""
        source = f"of {origin['origin']}{own}"
        yield f"  {source:<12}{_waiting(origin, this_cluster=this_cluster)}"


def _origin(waiting: ClusterBacklog) -> dict[str, Any]:
    """Return the report of one source cluster."""
    return {
        **waiting._asdict(),
        "takeovers": [
            {"cluster": cluster, "after": after, "left": max(0.0, left)}
            for cluster, after, left in _turns(waiting)
        ],
    }


def _turns(waiting: ClusterBacklog) -> Iterator[tuple[int, float, float]]:
    """
    Yield each other cluster that may relay the oldest of these records.

    With the age in seconds at which it may, and the seconds that are left until
    then, by this database's clock: others see another age if their clocks differ.
    """
    count, origin, age = settings.CLUSTERS_COUNT, waiting.origin, waiting.oldest_age
    turns = successors(origin, count=count, maximum_delay=settings.MAXIMUM_DELAY)
    for cluster, after in turns if waiting.records else ():
        if age is not None:
            yield cluster, after, after - age
        elif distance(origin, cluster, count) == 0:
            # No record has a finite time, and the source cluster is unknown.
            yield cluster, 0.0, 0.0


def _waiting(origin: dict[str, Any], *, this_cluster: int) -> str:
    if not origin["records"]:
        return "nothing"
    age = origin["oldest_age"]
    words = [
        f"{origin['records']:,}",
        "without a time" if age is None else f"oldest {duration(age)}",
        *(
            _turn(takeover, this_cluster=this_cluster)
            for takeover in origin["takeovers"]
        ),
    ]
    return ", ".join(words)


def _turn(takeover: dict[str, Any], *, this_cluster: int) -> str:
    own = " (this cluster)" if takeover["cluster"] == this_cluster else ""
    when = f"in {duration(takeover['left'])}" if takeover["left"] else "now"
    return f"{takeover['cluster']}{own} takes over {when}"
