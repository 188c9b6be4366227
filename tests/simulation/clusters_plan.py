"""
What befalls several clusters: their number, lags, clocks and disasters.

It adds to a plan of `plan.py` what only they have. How long things take is
chosen by MAXIMUM_DELAY, since that is what decides whether anybody takes over.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from random import Random
from typing import Final

from .plan import Fault, Plan, make_plan

DISASTERS: Final = frozenset({"death", "deaths", "loss", "pause"})
"""Faults that last about as long as a rank waits."""

SPARE: Final = 5.0
"""Seconds that elections, drains and the backlog after them may take, in all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClustersPlan(Plan):
    """The course of one history of several clusters; rows and nodes are of each."""

    clusters: int
    maximum_delay: float
    """Seconds that each rank waits longer than the one before."""
    lag: float
    """Seconds that a change travels to another table at most, in peace."""
    offsets: tuple[float, ...]
    """How far each database's clock is ahead."""
    is_brief: bool
    """All lags, outages and offsets together are shorter than MAXIMUM_DELAY."""
    is_one_dead: bool
    """Nothing happens but that the harvesters of one cluster die."""

    @property
    def skew(self) -> float:
        """How far two clocks are apart at most."""
        return max(self.offsets) - min(self.offsets)

    def __str__(self) -> str:
        offsets = ", ".join(f"{offset:+.2f}" for offset in self.offsets)
        head = (
            f"{self.clusters} clusters, each with the following; MAXIMUM_DELAY "
            f"{self.maximum_delay:.1f} s, lag {self.lag:.2f} s, clocks {offsets}"
        )
        return f"{head}\n{Plan.__str__(self)}"


def make_clusters_plan(seed: int, delivery: str) -> ClustersPlan:
    """Throw the dice of one seed."""
    plan = make_plan(seed, delivery)
    dice = Random(f"{delivery} {seed}")
    is_brief = plan.profile in ("graceful", "brief")
    is_one_dead = plan.profile == "death"
    is_quick = is_brief or is_one_dead
    clusters = dice.choice((2, 3, 3, 4))
    lag = dice.choice((0.01, 0.1, 0.3))
    delay = dice.choice((1.5, 2.5))
    if is_one_dead:
        lag, delay = min(lag, 0.1), 3.0
    apart = {"clocks": 1.5 * delay, "death": 0.0}.get(plan.profile, 0.1)
    offsets = tuple(dice.uniform(-apart, apart) for _ in range(clusters))
    faults = tuple(
        _placed(fault, dice, clusters, 0.2 if is_brief else delay)
        for fault in plan.faults[: 1 if is_one_dead else 4]
    )
    if is_brief:
        outages = sum(fault.duration * (1 + plan.nodes) for fault in faults)
        delay = outages + lag + 2 * apart + SPARE
    values = {f.name: getattr(plan, f.name) for f in fields(plan)} | {
        "faults": faults,
        "nodes": dice.choice((1, 2, 2)),
        "writers": min(plan.writers, 2),
        "keys": min(plan.keys, 4),
        "rows": max(5, plan.rows // clusters),
        "backlog": plan.backlog // clusters,
        "trouble": max(plan.trouble, *(f.at + f.duration for f in faults)),
    }
    if is_quick:
        values["max_in_flight"] = max(8, plan.max_in_flight)
        values["latency"] = min(0.02, plan.latency)
    # Own rows are sent soon only where the position waits for nobody.
    values["max_gaps"] = 1000
    return ClustersPlan(
        **values,
        clusters=clusters,
        maximum_delay=delay,
        lag=lag,
        offsets=offsets,
        is_brief=is_brief,
        is_one_dead=is_one_dead,
    )


def _placed(fault: Fault, dice: Random, clusters: int, delay: float) -> Fault:
    """Say in which cluster a fault happens; let disasters last."""
    duration = fault.duration
    if fault.kind in DISASTERS:
        duration = delay * dice.choice((0.4, 0.8, 1.5, 1.5, 2.5, 3.5))
        duration *= dice.uniform(0.8, 1.2) * (1.5 if fault.kind == "deaths" else 1.0)
    return fault._replace(cluster=dice.randrange(clusters), duration=duration)
