"""
Which rows a shard has, as an SQL fragment: those of the keys that hash to it.

The hash is PostgreSQL's own, of topic and key, so it is the same for every row of a
key. It is the one by which PostgreSQL partitions tables by hash.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, LiteralString

IS_OWN: Final[LiteralString] = """\
mod(
    hashtextextended(o.kafka_key, hashtextextended(o.kafka_topic, 0))
    & 9223372036854775807,
    %(shards)s::bigint
) = %(shard)s::bigint"""
"""Rows of the shard; the bits keep the hash from being negative."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardScope:
    """Which rows the leader of one of several shards reads."""

    shard: int
    shards: int

    id_increment: ClassVar[int] = 1
    """How far apart two ids are that are drawn one after the other."""
    readable: ClassVar[LiteralString] = IS_OWN
    """Rows that are read in order, by position and gaps."""
    repairable: ClassVar[LiteralString] = f"o.id <= %(position)s AND {IS_OWN}"
    """Rows that a repair scan finds."""
    seen: ClassVar[LiteralString] = "o.id <= %(end)s"
    """Rows among which the ids of other shards are known."""

    @property
    def parameters(self) -> Mapping[str, float | None]:
        """Parameters of these conditions."""
        return {"shard": self.shard, "shards": self.shards}
