"""What an operator sees of a consumer group."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient


class Groups:
    """The consumer groups of one broker."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers})

    def members(self, group: str) -> int:
        """How many members the coordinator believes in."""
        future = self._admin.describe_consumer_groups([group], request_timeout=5)
        return len(future[group].result(timeout=10).members)
