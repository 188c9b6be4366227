"""
What befalls several shards: how many there are, and when their number changes.

It adds to a plan of `plan.py` what only they have.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import pairwise
from random import Random
from typing import Final, NamedTuple

from .plan import Plan, make_plan

MOST: Final = 4


class Division(NamedTuple):
    """A new number of shards."""

    at: float
    """Seconds after the start."""
    shards: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardsPlan(Plan):
    """The course of one history of several shards."""

    divisions: tuple[Division, ...]
    """In the order of their times; the first one is there from the start."""

    def __str__(self) -> str:
        told = [f"{shards} from {at:.3f} s" for at, shards in self.divisions]
        return f"shards: {', '.join(told)}\n{Plan.__str__(self)}"


def make_shards_plan(seed: int, delivery: str) -> ShardsPlan:
    """Throw the dice of one seed."""
    plan = make_plan(seed, delivery)
    dice = Random(f"{delivery} {seed}")
    times = sorted(dice.uniform(0.3, plan.trouble) for _ in range(dice.randint(1, 3)))
    numbers = [dice.randint(1, MOST) for _ in (0.0, *times)]
    divisions = [Division(0.0, numbers[0])]
    divisions += [
        Division(at, after)
        for at, (before, after) in zip(times, pairwise(numbers), strict=True)
        if after != before
    ]
    nodes = dice.choice((1, 2, 2, 3))
    if plan.profile == "single":
        nodes = max(nodes, 2)
    values = {f.name: getattr(plan, f.name) for f in fields(plan)} | {
        "faults": tuple(f._replace(node=min(f.node, nodes - 1)) for f in plan.faults),
        "nodes": nodes,
        "keys": plan.keys + MOST,
    }
    return ShardsPlan(**values, divisions=tuple(divisions))
