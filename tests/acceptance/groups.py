"""What an operator sees of a consumer group."""

from __future__ import annotations

from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient


class Groups:
    """The consumer groups of one broker."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers})

    def exists(self, group: str) -> bool:
        """Whether the broker knows the group at all."""
        listing = self._admin.list_consumer_groups(request_timeout=5).result(10)
        return group in {found.group_id for found in listing.valid}

    def settled(self, group: str) -> int | None:
        """How many members the group has, or None while it rebalances."""
        future = self._admin.describe_consumer_groups([group], request_timeout=5)[group]
        description = future.result(timeout=10)
        is_stable = description.state == ConsumerGroupState.STABLE
        return len(description.members) if is_stable else None
