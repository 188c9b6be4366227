"""
The outbox table behind the ledger relay's ports: rows that nobody marks.

Before it comes `stashing.py` or anybody's INSERT, after it `ledger/`. Reading
changes nothing; what is written is found by id and message id.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, ClassVar, LiteralString

from ..ledger.ports import Held
from ..records import Lane, Record
from .connection import Connection
from .statements import IDENTIFIED, queries
from .table import Table, array_of


class UnmarkedOutbox(Table):
    """Reads and settles rows of one table, for one thread."""

    OWNED: ClassVar[LiteralString] = IDENTIFIED

    _history: tuple[Connection, str] | None = None

    def page(
        self, position: int, gaps: Sequence[tuple[int, int]], *, limit: int
    ) -> list[Record]:
        if not gaps:
            return self._read("page_after", position=position, limit=limit)
        return self._read(
            "page",
            position=position,
            lows=[low for low, _ in gaps],
            highs=[high for _, high in gaps],
            limit=limit,
        )

    def writers(self) -> tuple[frozenset[str], bool]:
        with self._database.session() as connection:
            values = {"table": self._quoted}
            rows = connection.execute(queries()["writers"], values).fetchall()
        return frozenset(name for name, _ in rows), any(row[1] for row in rows)

    def sweep(
        self,
        position: int,
        *,
        known: Collection[int],
        passed: Collection[Lane],
        limit: int,
    ) -> list[Record]:
        return self._read(
            "sweep",
            position=position,
            known=array_of(known),
            topics=[topic for topic, _ in passed],
            keys=[key for _, key in passed],
            limit=limit,
        )

    def lanes(self, held: Sequence[Held], position: int, *, limit: int) -> list[Record]:
        return self._read(
            "lanes",
            low=min(low for _, low in held),
            position=position,
            # No topic has a line break in its name.
            lanes=[f"{topic}\n{key}" for (topic, key), _ in held],
            limit=limit,
        )

    def history(self) -> str:
        with self._database.session() as connection:
            # A connection cannot outlive the history that it began in.
            is_known = self._history is not None and self._history[0] is connection
            if not is_known or self._database.is_pooled:
                row = connection.execute(queries()["history"]).fetchone()
                self._history = connection, str(row[0]) if row else ""
            assert self._history is not None
            return self._history[1]

    def _owner(self, leader_id: str, records: Sequence[Record]) -> dict[str, Any]:
        return {"message_ids": array_of([record.message_id for record in records])}
