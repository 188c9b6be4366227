"""
The fencing token: proves inside a transaction that the group has this leader.

It belongs to one generation of the group. After the group has assigned the
partition to another member, the broker refuses it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from confluent_kafka import TopicPartition


class FencingToken(NamedTuple):
    """The member in one generation, and an offset to commit in its name."""

    position: TopicPartition
    """After the latest heartbeat that was read; becomes the group's offset."""
    group: Any
    """The consumer's group metadata: member and generation."""
