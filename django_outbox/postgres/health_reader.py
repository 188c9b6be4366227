"""Reads the health of the database of an outbox: one statement for each question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ..exceptions import DatabaseBusy, DatabaseError, DatabaseUnavailable
from ..message.record import Identity
from .connection import Database
from .database_facts import (
    DatabaseFacts,
    IdSequence,
    LooseCommit,
    OldTransaction,
    PreparedTransaction,
    Privilege,
    ServerFacts,
    SlotFacts,
    TableFacts,
    WaitingTopic,
)
from .outbox_table import Table
from .statements import compose, quoted_table

SUFFIXES: Final = ("", "_parked", "_archive", "_staged", "_series", "_processed")
"""Of the tables whose state is read."""

ALL_SUFFIXES: Final = (*SUFFIXES, "_offsets", "_pauses", "_identity")
"""Of all tables that `migrate` makes."""

WAITING_CAP: Final = 20_000
"""Rows, from the head of the outbox, whose topics are read: a few milliseconds."""

OLD_TRANSACTION_AGE: Final = 600.0
"""Seconds after which an open transaction counts as old."""


class HealthReader:
    """
    Looks at one outbox and its server; for one thread.

    Args:
        database: its connection.
        table: name of the outbox table, perhaps with its schema.
    """

    def __init__(self, database: Database, *, table: str) -> None:
        self._database = database
        self._table = table
        self._statements = compose(table, ())

    def identity(self) -> Identity | None:
        """Read the identity of the outbox; None: it has none."""
        return Table(self._database, table=self._table).identity()

    def waiting(self) -> Sequence[WaitingTopic]:
        """Read for which topics records wait."""
        return _waiting(self._rows("waiting_topics", cap=WAITING_CAP))

    def read(self, needed: Sequence[Privilege], *, role: str = "") -> DatabaseFacts:
        """
        Read everything; what a right is missing for is in `unseen`.

        Args:
            needed: the privileges to look for.
            role: who should have them; by default the role of the session.

        Raises:
            DatabaseUnavailable: the database does not answer.
        """
        server = ServerFacts(*self._rows("server_settings")[0])
        unseen: dict[str, str] = {}

        def rows(what: str, name: str, **values: Any) -> Sequence[Sequence[Any]]:
            try:
                return self._rows(name, **values)
            except (DatabaseUnavailable, DatabaseBusy):
                raise
            except DatabaseError as error:
                unseen[what] = str(error)
                return ()

        ids = rows("sequence of the ids", "id_sequence", table=self._named(""))
        tables = [self._named(suffix) for suffix in SUFFIXES]
        return DatabaseFacts(
            server=server,
            is_pooled=self._database.is_pooled,
            role=role or server.role,
            loose_commits=[
                LooseCommit(*row) for row in rows("settings of roles", "loose_commits")
            ],
            tables=[
                TableFacts(*row)
                for row in rows("tables", "table_health", tables=tables)
            ],
            absent=self._absent(),
            transactions=[
                OldTransaction(*row)
                for row in rows(
                    "transactions", "old_transactions", age=OLD_TRANSACTION_AGE
                )
            ],
            prepared=[
                PreparedTransaction(*row)
                for row in rows(
                    "prepared transactions",
                    "prepared_transactions",
                    age=OLD_TRANSACTION_AGE,
                )
            ],
            slots=[
                SlotFacts(*row)
                for row in rows("replication slots", "replication_slots")
            ],
            sequence=IdSequence(*ids[0]) if ids else None,
            missing=self._missing(needed, role or server.role),
            waiting=_waiting(
                rows("waiting records", "waiting_topics", cap=WAITING_CAP)
            ),
            unseen=unseen,
        )

    def close(self) -> None:
        """Close the connection; the next call opens a new one."""
        self._database.close()

    def _missing(self, needed: Sequence[Privilege], role: str) -> Sequence[Privilege]:
        rows = self._rows(
            "missing_privileges",
            table=self._named(""),
            role=role,
            names=[self._named(one.suffix) for one in needed],
            kinds=[one.kind for one in needed],
            columns=[one.column for one in needed],
            privileges=[one.privilege for one in needed],
        )
        return [needed[number - 1] for (number,) in rows]

    def _absent(self) -> Sequence[str]:
        names = [self._named(suffix) for suffix in ALL_SUFFIXES]
        rows = self._rows("absent_tables", table=names[0], tables=names)
        return [ALL_SUFFIXES[number - 1] for (number,) in rows]

    def _named(self, suffix: str) -> str:
        return quoted_table(self._table, suffix=suffix)

    def _rows(self, name: str, **values: Any) -> Sequence[Sequence[Any]]:
        with self._database.session() as connection:
            return connection.execute(self._statements[name], values).fetchall()


def _waiting(rows: Sequence[Sequence[Any]]) -> Sequence[WaitingTopic]:
    return [WaitingTopic(*row) for row in rows]
