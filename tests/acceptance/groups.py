"""What an operator sees of a consumer group."""

from __future__ import annotations

from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient


class Groups:
    """The consumer groups of one broker."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers})

    def settled(self, group: str) -> int | None:
        """How many members the group has, or None while it rebalances."""
        future = self._admin.describe_consumer_groups([group], request_timeout=5)[group]
        description = future.result(timeout=10)
        is_stable = description.state == ConsumerGroupState.STABLE
        return len(description.members) if is_stable else None
