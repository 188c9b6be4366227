"""What a fault befalls: servers, ways to them, harvesters and writers."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from django_outbox.devstack import Stack

from ...processes import Process
from ...services import Topics
from ..harvesters import MODES, Harvesters
from ..tables import OutboxTable
from ..writing import Writers
from .impaired_link import ImpairedLink

WINDOW: Final = 200
"""W: records sent and not settled."""

RELAYS: Final[Mapping[str, Mapping[str, str]]] = {
    **MODES,
    "four shards": {"OUTBOX_SHARDS": "4"},
}
"""Variables of each kind of relay that faults befall."""

BACKLOG: Final = 10_000
"""Records, in the middle of which a fault strikes."""

Term: TypeAlias = tuple[int, int, str, str]
"""Begin and end (boottime_ns), leader id, name of the process."""


@dataclass(frozen=True, kw_only=True)
class Site:
    """Servers, and the ways to them that can be impaired."""

    servers: Stack
    bootstrap: str
    """Where the leader looks for brokers."""
    to_kafka: ImpairedLink
    to_database: ImpairedLink


@dataclass(kw_only=True)
class Scene:
    """A leader with impaired ways to its servers, and a standby that uses none."""

    site: Site
    topics: Topics
    table: OutboxTable
    topic: str
    harvesters: Harvesters
    writers: Writers
    leader: Process
    standby: Process
    shards: int
    """Leaders at a time."""
    chance: random.Random
    still: defaultdict[str, list[int]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """When a process died or stood still by our hand (boottime_ns), by its name."""

    def kill(self, process: Process) -> None:
        """End a process as a crash does."""
        self.still[process.name].append(process.kill())

    def pause(self, process: Process) -> None:
        """Let a process stand still."""
        self.still[process.name].append(process.pause())


def overlaps(terms: Iterable[Term], still: Mapping[str, Sequence[int]]) -> list[str]:
    """
    Pairs of terms in which two led at once.

    Args:
        terms: In the order of their begins.
        still: A process that stands still does not lead until it has fenced itself.
    """
    ends = [
        (begin, min([end, *(at for at in still.get(name, ()) if at > begin)]), name)
        for begin, end, _, name in terms
    ]
    return [
        f"{name} led until {end}, and {other} from {begin}"
        for number, (_, end, name) in enumerate(ends)
        for begin, _, other in ends[number + 1 :]
        if begin < end
    ]
