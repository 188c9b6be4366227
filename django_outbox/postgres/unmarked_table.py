"""
The outbox table without marks: the relay's port `UnmarkedTable`.

Used where marks are in the memory of the leader. Reading changes nothing; writes find
their rows by id and message id.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any, ClassVar, Final, LiteralString
from uuid import uuid4

from ..message.record import HIGHEST_ID, KeyToRead, OrderingKey, Record, Sweep
from ..relay.ports import Others
from .connection import Connection
from .outbox_table import Table
from .parameters import array_of, message_ids_of
from .shard_sql import ShardScope
from .statements import IDENTIFIED, queries

_SHORTEST_RUN: Final = 50
"""Records of a run at least. For fewer the server makes a new plan each time, since it
takes a range for a part of the table: a list costs less."""

_SPARSEST_RUN: Final = 3
"""Ids for each record of a run at most; with four, a list costs the same."""


class UnmarkedOutbox(Table):
    """Reads and settles rows of one table, for one thread."""

    OWNED: ClassVar[LiteralString] = IDENTIFIED

    _timeline: tuple[Connection, str] | None = None

    @property
    def id_increment(self) -> int:
        return self._scope.id_increment if self._scope else 1

    def page(
        self,
        position: int,
        gaps: Sequence[tuple[int, int]],
        keys_to_read: Sequence[KeyToRead] = (),
        *,
        limit: int,
        end: int | None = None,
    ) -> list[Record]:
        values = {"position": position, "limit": limit}
        if end is not None:
            values["end"] = end
        if not gaps and not keys_to_read:
            return self._read("page_after", **values)
        return self._read(
            "page",
            **values,
            lows=[low for low, _ in gaps],
            highs=[high for _, high in gaps],
            **_key_parameters(keys_to_read),
        )

    @property
    def shards(self) -> int:
        return self._scope.shards if isinstance(self._scope, ShardScope) else 1

    def others(self, position: int, *, limit: int) -> Others:
        values = {"position": position, "limit": limit * self.shards}
        with self._session("others") as connection:
            statement = self._statements(connection)["others"]
            found = connection.execute(
                statement, values | self._constants, prepare=True
            )
            end, ids, own = found.fetchone() or (None, None, 0)
        return Others([*map(int, ids.split(","))] if ids else [], end or position, own)

    def purge(self, leader_id: str | None, records: Sequence[Record]) -> int:
        if run := _run_of(records):
            return self._write(f"{self._purge}_run", is_kept=True, **run)
        return super().purge(leader_id, records)

    def writers(self) -> tuple[frozenset[str], bool]:
        with self._database.session() as connection:
            values = {"table": self._quoted}
            rows = connection.execute(queries()["writers"], values).fetchall()
        return frozenset(name for name, _ in rows), any(row[1] for row in rows)

    def sweep(self, position: int, sweep: Sweep, *, limit: int) -> list[Record]:
        return self._read(
            "sweep",
            position=position,
            known=array_of(map(str, sweep.known)),
            passed_keys=[_joined(ordering_key) for ordering_key in sweep.passed],
            passed_topics=list(sweep.passed_topics),
            limit=limit,
        )

    def database_timeline(self) -> str:
        with self._database.session() as connection:
            # A connection cannot outlive the timeline on which it was opened.
            is_known = self._timeline is not None and self._timeline[0] is connection
            if not is_known or self._database.is_pooled:
                row = connection.execute(queries()["timeline"]).fetchone()
                self._timeline = connection, str(row[0]) if row else ""
            assert self._timeline is not None
            return self._timeline[1]

    def pooled_timeline(self) -> str:
        """Name the timeline where a pooler may change the server unnoticed."""
        with self._database.session():
            is_pooled = self._database.is_pooled
        return self.database_timeline() if is_pooled else ""

    def _owner(
        self, leader_id: str | None, records: Sequence[Record]
    ) -> dict[str, Any]:
        return message_ids_of(records)


def _key_parameters(keys_to_read: Sequence[KeyToRead]) -> dict[str, Any]:
    """Return the parameters for these keys; without any, ids that no row has."""
    return {
        "low": min((low for _, low in keys_to_read), default=HIGHEST_ID),
        "ordering_keys": [_joined(ordering_key) for ordering_key, _ in keys_to_read],
    }


def _joined(ordering_key: OrderingKey) -> str:
    # The name of a topic contains no line break.
    topic, key = ordering_key
    return f"{topic}\n{key}"


def _run_of(records: Sequence[Record]) -> dict[str, Any]:
    """
    Return the parameters of a run; nothing where a list is better.

    Each id from the lowest to the highest has a place with a message id. That of an id
    which is not to be deleted has one that no row has.
    """
    if len(records) < _SHORTEST_RUN:
        return {}
    message_ids = {record.id: record.message_id for record in records}
    if len(message_ids) < len(records):
        # An id that was given again comes twice, with two message ids.
        return {}
    low, high = min(message_ids), max(message_ids)
    ids = range(low, high + 1)
    if len(ids) > _SPARSEST_RUN * len(records):
        return {}
    run = "".join(map(message_ids.get, ids, repeat(str(uuid4()))))
    return {"low": low, "high": high, "run": bytes.fromhex(run.replace("-", ""))}
