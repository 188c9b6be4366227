"""
What every adapter of the outbox table does: settle rows, measure, reconnect.

Each write is one statement, and atomic; a read may need several.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Final, LiteralString
from uuid import UUID

from psycopg import errors

from ..exceptions import DatabaseBusy, DatabaseError, DatabaseReadOnly, RowInvalid
from ..message.pauses import NOTHING_PAUSED, Pauses
from ..message.record import (
    Backlog,
    Failure,
    Identity,
    Numbering,
    Record,
    TopicCounts,
)
from ..settings.options import OutboxSettings
from .connection import Connection, Database
from .parameters import array_of, ids_of
from .shard_sql import ShardScope
from .statements import MARKED, compose, queries, quoted_table
from .takeover_sql import Scope

logger = logging.getLogger(__name__)

BACKLOG_CAP: Final = 100_000
"""Rows after which `backlog()` stops counting: about ten milliseconds."""

ERROR_LENGTH: Final = 500
"""Characters of an error's text that are stored."""

_KEPT: Final = frozenset({"page", "page_after"})
"""Statements that the server prepares, perhaps with a generic plan: planning a page
with gaps takes longer than reading it. For these two every plan is good, whatever
the statistics say; for a mark, a plan made while the table was empty is bad."""

_KEPT_IDS: Final = 200
"""A purge of a list of at most so many rows is prepared, too: for 30 rows that saves a
fifth of its time. With a generic plan the server compares each message id with all
others, which for a thousand rows costs more than planning."""

MIGRATE: Final = "Run `manage.py migrate`."

_NOTED: Final = frozenset({"attempts", "last_error"})

_new_record: Final[Callable[[type[Record], Sequence[Any]], Record]] = tuple.__new__
"""Makes a record from a row in half the time of `Record(*row)`."""


def _to_records(rows: Iterable[Sequence[Any]]) -> list[Record]:
    """
    Turn rows into records; the binary value is the last column.

    One expression with all columns, because slices and a call for each row take a
    quarter longer.
    """
    return [
        _new_record(
            Record, (a, b, c, text if raw is None else raw, e, f, g, h, i, j, k)
        )
        for a, b, c, text, e, f, g, h, i, j, k, raw in rows
    ]


class Table:
    """
    One table, for one thread.

    It also works on a table with goharvest's own columns: message ids are
    then derived from the rows, and attempts are not counted.

    Args:
        table: its name, perhaps with a schema: `sales.outbox`.
        source: name of this outbox, from which message ids are derived.
        has_archive: purged rows go to the archive table.
        scope: which rows it reads, of several clusters or shards.
        page_bytes: limit for the values of one page; its last row may exceed it.
    """

    OWNED: ClassVar[LiteralString] = MARKED
    """Which rows this adapter may write: `MARKED` or `IDENTIFIED`."""

    def __init__(
        self,
        database: Database,
        *,
        table: str = "outbox",
        source: str = "outbox",
        has_archive: bool = False,
        scope: Scope | ShardScope | None = None,
        page_bytes: int = OutboxSettings().page_bytes,
    ) -> None:
        self._database = database
        self._table = table
        self._purge = "archive" if has_archive else "purge"
        self._scope = scope
        self._constants = {
            "source": source,
            "page_bytes": page_bytes,
            **(scope.parameters if scope else {}),
        }
        self._known: tuple[Connection, Mapping[str, bytes]] | None = None
        self._has_warned = False
        self._reads_pauses = False
        """Whether the last look found a table of pauses that may be read."""

    def purge(self, leader_id: str | None, records: Sequence[Record]) -> int:
        owner = self._owner(leader_id, records)
        is_kept = len(records) <= _KEPT_IDS
        return self._write(self._purge, is_kept=is_kept, ids=ids_of(records), **owner)

    def fail(self, leader_id: str, failures: Sequence[Failure]) -> int:
        return self._note("fail", leader_id, failures)

    def park(self, leader_id: str, failures: Sequence[Failure]) -> int:
        return self._note("park", leader_id, failures)

    def kept(self, leader_id: str | None, records: Sequence[Record]) -> set[int]:
        return self._ids("kept", records, **self._owner(leader_id, records))

    def locked(self, records: Sequence[Record]) -> set[int]:
        return self._ids("locked", records)

    def ping(self) -> None:
        with self._session("ping") as connection:
            # Without parameters, a % of the table's name would stay doubled.
            statement = self._statements(connection)["ping"]
            row = connection.execute(statement, {}).fetchone()
        is_standby, is_read_only = row or (False, False)
        if is_standby:
            raise DatabaseReadOnly("the database is a standby, which is read-only")
        if is_read_only:
            raise DatabaseReadOnly(
                "transactions are read-only in this database, or for this role "
                "(default_transaction_read_only)"
            )

    def pauses(self) -> Pauses:
        with self._session("pauses") as connection:
            self._reads_pauses = self._reads_pauses or self._may_pause(connection)
            if not self._reads_pauses:
                return NOTHING_PAUSED
            statement = self._statements(connection)["pauses"]
            try:
                return Pauses.of(connection.execute(statement).fetchall())
            except (errors.UndefinedTable, errors.InsufficientPrivilege):
                # The migration was taken back, or the grant: ask first from now on.
                self._reads_pauses = False
                return NOTHING_PAUSED

    def _may_pause(self, connection: Connection) -> bool:
        """Return whether there is a table of pauses that this role may read."""
        name = quoted_table(self._table, suffix="_pauses")
        found = connection.execute(queries()["has_pauses"], {"pauses": name})
        exists, is_readable = found.fetchone() or (False, False)
        if exists and not is_readable:
            self._warn_of_pauses(name)
        return bool(is_readable)

    def _warn_of_pauses(self, name: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "The role of this process may not read %s, so that nothing can be "
                "paused: run what manage.py outbox grants prints",
                name,
                extra={"action": "pauses"},
            )

    def backlog(self) -> Backlog:
        with self._database.session() as connection:
            statement = self._statements(connection)["backlog"]
            values = {"cap": BACKLOG_CAP, **self._constants}
            row = connection.execute(statement, values).fetchone()
        records, age = row or (0, None)
        return Backlog(records, records >= BACKLOG_CAP, age or 0.0)

    def topics(self, *, limit: int) -> TopicCounts:
        with self._database.session() as connection:
            statement = self._statements(connection)["topics"]
            values = {"cap": BACKLOG_CAP, "limit": limit, **self._constants}
            rows = connection.execute(statement, values).fetchall()
        largest = tuple((topic, count) for topic, count, _ in rows)
        total = rows[0][2] if rows else 0
        return TopicCounts(largest, total - sum(count for _, count in largest))

    def writer_ages(self) -> Mapping[str, float | None]:
        with self._database.session() as connection:
            values = {"table": self._quoted}
            rows = connection.execute(queries()["writer_ages"], values).fetchall()
        return dict(rows)

    def dead_tuples(self) -> int:
        with self._database.session() as connection:
            values = {"table": self._quoted}
            row = connection.execute(queries()["dead_tuples"], values).fetchone()
        return int(row[0] or 0) if row else 0

    def numbering(self) -> Numbering:
        """Read how rows and ids are numbered by cluster."""
        values = {
            "table": self._quoted,
            "staged": quoted_table(self._table, suffix="_staged"),
        }
        with self._database.session() as connection:
            row = connection.execute(queries()["numbering"], values).fetchone()
        assert row is not None
        return Numbering(*row)

    def identity(self) -> Identity | None:
        """
        Read the identity of the outbox; None: a table of goharvest's has none.

        Raises:
            DatabaseError: it should have one, and `migrate` has not created it yet.
        """
        name = quoted_table(self._table, suffix="_identity")
        values = {"identity": name, "table": self._quoted}
        with self._database.session() as connection:
            row = connection.execute(queries()["has_identity"], values).fetchone()
            if row == (False, False):
                return None
            if row == (False, True):
                raise DatabaseError(f"There is no table {name}. {MIGRATE}")
            statement = self._statements(connection)["identity"]
            row = connection.execute(statement).fetchone()
        if row is None:
            raise DatabaseError(
                f"The table {name} is empty. Run `manage.py outbox identity --new`."
            )
        return Identity(*row)

    def close(self) -> None:
        """Close the connection; the next call opens a new one."""
        self._database.close()

    def _owner(
        self, leader_id: str | None, records: Sequence[Record]
    ) -> dict[str, Any]:
        """Return the parameters of `OWNED`."""
        return {"leader_id": leader_id}

    def _note(self, name: str, leader_id: str, failures: Sequence[Failure]) -> int:
        return self._write(
            name,
            ids=ids_of([failure.record for failure in failures]),
            # PostgreSQL does not allow NUL in a text.
            errors=[
                failure.error.replace("\0", "")[:ERROR_LENGTH] for failure in failures
            ],
            **self._owner(leader_id, [failure.record for failure in failures]),
        )

    def _ids(self, name: str, records: Sequence[Record], **values: Any) -> set[int]:
        values["ids"] = ids_of(records)
        with self._session(name) as connection:
            statement = self._statements(connection)[name]
            rows = connection.execute(statement, values | self._constants).fetchall()
        return {row[0] for row in rows}

    def _write(self, name: str, *, is_kept: bool = False, **values: Any) -> int:
        with self._session(name) as connection:
            statement = self._statements(connection)[name]
            values |= self._constants
            return connection.execute(statement, values, prepare=is_kept).rowcount

    def _read(self, name: str, **values: Any) -> list[Record]:
        """Fetch the records of a page, in order; a row that fails is poison."""
        try:
            return self._fetch(name, **values)
        except RowInvalid:
            with self._session(name) as connection:
                statement = self._statements(connection)[f"{name}_ids"]
                values |= self._constants
                rows = connection.execute(statement, values).fetchall()
            return self._read_parts(sorted({row[0] for row in rows}))

    def _read_parts(self, ids: Sequence[int]) -> list[Record]:
        """Read rows by halves, until those that cannot be read are known."""
        records: list[Record] = []
        parts = [ids] if ids else []
        while parts:
            part = parts.pop()
            try:
                records += self._fetch("rows", ids=array_of(map(str, part)))
            except RowInvalid as error:
                if len(part) == 1:
                    records += self._unreadable(part[0], str(error))
                else:
                    half = len(part) // 2
                    parts += [part[half:], part[:half]]
        return records

    def _unreadable(self, row_id: int, reason: str) -> list[Record]:
        """Read as much of a row as there is to say whose turn it is."""
        for name in ("row_key", "row_key_escaped"):
            try:
                with self._session(name) as connection:
                    statement = self._statements(connection)[name]
                    values = {"id": row_id, **self._constants}
                    row = connection.execute(statement, values).fetchone()
            except RowInvalid:
                continue
            if row is None:
                return []
            topic, key, *known = row
            return [Record.unreadable(row_id, (topic, key), *known, reason=reason)]
        ordering_key = ("", f"row {row_id}")
        this_cluster = self._scope.this_cluster if isinstance(self._scope, Scope) else 0
        return [
            Record.unreadable(
                row_id, ordering_key, _NIL, cluster_id=this_cluster, reason=reason
            )
        ]

    def _fetch(self, name: str, **values: Any) -> list[Record]:
        """Fetch the records that a statement returns, in the server's order."""
        with self._session(name) as connection:
            statement = self._statements(connection)[name]
            with connection.cursor(binary=True) as cursor:
                values |= self._constants
                cursor.execute(statement, values, prepare=name in _KEPT)
                # All at once: iterating over the cursor runs Python for each row.
                return _to_records(cursor.fetchall())

    @contextmanager
    def _session(self, name: str) -> Iterator[Connection]:
        """Lend the connection for a statement; name the holder of a lock it needs."""
        try:
            with self._database.session() as connection:
                yield connection
        except DatabaseBusy as error:
            raise DatabaseBusy(f"{name} waits for {self._lock()}. {error}") from None

    def _lock(self) -> str:
        """Describe the lock that the statement waits for, if it is visible."""
        suffixes = {"table": "", "parked": "_parked", "archive": "_archive"}
        names = {
            name: quoted_table(self._table, suffix=suffix)
            for name, suffix in suffixes.items()
        }
        try:
            with self._database.session() as connection:
                row = connection.execute(queries()["holders"], names).fetchone()
        except DatabaseError:
            row = None
        if row is None:
            return f"a lock in {self._table}"
        relation, pid, application, mode = row
        holder = f"pid {pid} ({application or 'no application_name'})"
        if pid is None:
            holder = "a prepared transaction"
        return f"a lock on {relation}, held by {holder} as {mode}"

    def _statements(self, connection: Connection) -> Mapping[str, bytes]:
        """Compose the statements for the table as this connection sees it."""
        if self._known is None or self._known[0] is not connection:
            values = {"table": self._quoted}
            rows = connection.execute(queries()["columns"], values).fetchall()
            columns = {row[0] for row in rows}
            statements = dict(
                compose(self._table, columns, owned=self.OWNED, scope=self._scope)
            )
            if not columns >= _NOTED:
                statements["fail"] = statements["fail_unnoted"]
            self._known = connection, statements
        return self._known[1]

    @property
    def _quoted(self) -> str:
        return quoted_table(self._table)


_NIL: Final = str(UUID(int=0))
"""Message id of a row of which not even that can be read; no row has it."""
