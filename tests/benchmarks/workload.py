"""The rows that benchmarks put into the table, and the topics that they go to."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from ..services import Topics
from .servers import connect

PARTITIONS: Final = 10

_FILL: Final = """
INSERT INTO outbox (create_time, kafka_topic, kafka_key, kafka_value,
                    kafka_header_keys, kafka_header_values)
SELECT now(), %(topic)s, 'key-' || {key}, repeat('x', %(size)s), '{{}}', '{{}}'
FROM generate_series(1, %(records)s) AS n
"""
"""Without headers of the user: a message then has the four that a relay adds."""

_EVEN: Final = "(n %% %(keys)s)"
_SKEWED: Final = "floor(%(keys)s * power(random(), 4))::int"
"""Of 1,000 keys the first has a sixth of all records, and ten have a third."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A backlog."""

    name: str
    records: int
    keys: int = 1000
    size: int = 200
    """Bytes of each value."""
    is_skewed: bool = False
    """Few keys have most of the records, as with customers or tenants."""

    def fill(self, topic: str) -> None:
        """Put it into an empty table, settled as after some time."""
        empty()
        self.insert(topic)
        with connect() as connection:
            connection.execute("VACUUM ANALYZE outbox")
            connection.execute("CHECKPOINT")

    def insert(self, topic: str) -> None:
        """Commit it, in one transaction."""
        key = _SKEWED if self.is_skewed else _EVEN
        values = {
            "topic": topic,
            "keys": self.keys,
            "size": self.size,
            "records": self.records,
        }
        with connect() as connection:
            connection.execute(_FILL.format(key=key), values)  # type: ignore[arg-type]


def empty() -> None:
    """Leave nothing in the table for the next side."""
    with connect() as connection:
        connection.execute("TRUNCATE outbox")


def new_topic() -> str:
    """Make a topic whose messages have the time of their arrival."""
    return Topics(os.environ["KAFKA_BOOTSTRAP_SERVERS"]).create(
        f"bench-{uuid4()}",
        partitions=PARTITIONS,
        config={"message.timestamp.type": "LogAppendTime"},
    )
