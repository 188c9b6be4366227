"""What is known of topics and brokers: plain values, without a Kafka client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

LEDGER_SEGMENT_BYTES: Final = 64 * 1024 * 1024
"""Size of a segment of the ledger topic; the last segment is not compacted."""

BROKER: Final = "settings of the brokers"
"""What could not be read, when it is the configuration of a broker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts:
    """One partition; offset and time are None where nobody asked for them."""

    replicas: int
    in_sync: int
    """How many of the replicas are in sync."""
    first_offset: int | None = None
    first_at: float | None = None
    """When its first record was written, in seconds since the epoch; None also where it
    has no record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """One topic, or the topic that a creation would make now."""

    name: str
    exists: bool = True
    partitions: Sequence[PartitionFacts] = ()
    """In the order of their numbers."""
    settings: Mapping[str, str] | None = None
    """The topic's configuration by Kafka's names; None: it could not be read."""

    @property
    def replicas(self) -> int:
        """Replicas of the partition that has the fewest."""
        return min((p.replicas for p in self.partitions), default=0)

    def number(self, name: str, default: int) -> int:
        """Return a whole number of the configuration."""
        return _number(self.text(name), default)

    def text(self, name: str) -> str:
        """Return a value of the configuration; empty if it is unknown."""
        return (self.settings or {}).get(name, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """What one look at a Kafka has found."""

    servers: str
    """Its addresses as in the settings, for command lines."""
    brokers: int
    settings: Mapping[str, str] | None
    """The configuration of one broker; None: it could not be read."""
    topics: Mapping[str, TopicFacts] = field(default_factory=dict)
    """Those of the requested topics that could be described; a missing one is there,
    with `exists` False."""
    unseen: Mapping[str, str] = field(default_factory=dict)
    """What could not be read, and why, by what it is: `topic orders`."""

    def text(self, name: str) -> str:
        """Return a setting of the broker; empty if it is unknown."""
        return (self.settings or {}).get(name, "")

    def number(self, name: str, default: int) -> int:
        """Return a setting of the broker as a whole number."""
        return _number(self.text(name), default)


def _number(text: str, default: int) -> int:
    return int(text) if text.lstrip("-").isdecimal() else default
