"""
What proves to the broker, inside a transaction, that the group has this leader.

`membership.py` renews it while its member owns the partition, and
`transactions.py` shows it. It is of one generation of the group: once the
group has given the partition to another, it is refused for ever.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from confluent_kafka import TopicPartition


class FencingToken(NamedTuple):
    """One generation's member, and an offset to commit in its name."""

    position: TopicPartition
    """Behind the newest heartbeat that was read; becomes the group's offset."""
    group: Any
    """The consumer's group metadata: member and generation."""
