"""
The outbox table behind the relay's ports `Outbox` and `Gauge`.

Each method is one statement of `queries.sql` and one round trip, atomic by
itself. Before it comes `stashing.py` or anybody's INSERT, after it the relay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ..records import Backlog, Failure, Lane, Record
from .connection import Connection, Database
from .statements import compose, identifier, queries

BACKLOG_CAP: Final = 100_000
"""Rows after which `backlog()` stops counting: about ten milliseconds."""

ERROR_LENGTH: Final = 500
"""Characters of an error's text that the table keeps."""

_HIGHEST_ID: Final = 2**63 - 1
_NOTED: Final = frozenset({"attempts", "last_error"})
_FIELDS: Final = len(Record._fields)
_VALUE: Final = Record._fields.index("value")

_new_record: Final[Callable[[type[Record], Sequence[Any]], Record]] = tuple.__new__
"""Makes a record from a row with half the work of `Record(*row)`."""


def _to_record(row: Sequence[Any]) -> Record:
    """Turn a row of mark into a record; the binary value comes last in a row."""
    raw = row[_FIELDS]
    if raw is None:
        return _new_record(Record, row[:_FIELDS])
    return _new_record(Record, (*row[:_VALUE], raw, *row[_VALUE + 1 : _FIELDS]))


class PostgresOutbox:
    """
    Marks and settles rows of one table, for one thread.

    One object does all marks and resets of a leader id: it knows how far the
    marks reach. It also works on a table with goharvest's own columns: message
    ids are then derived from the rows, and attempts are not counted.

    Args:
        table: its name, perhaps with a schema: `sales.outbox`.
        source: name of this outbox, of which derived message ids are made.
        has_archive: purged rows go to the archive table.
    """

    def __init__(
        self,
        database: Database,
        *,
        table: str = "outbox",
        source: str = "outbox",
        has_archive: bool = False,
    ) -> None:
        self._database = database
        self._table = table
        self._source = source
        self._has_archive = has_archive
        self._known: tuple[Connection, Mapping[str, bytes]] | None = None
        self._reach: tuple[str, int] = ("", 0)

    def mark(self, leader_id: str, *, limit: int) -> list[Record]:
        reach = self._reach_of(leader_id, unseen=0)
        # Any row may be marked until the outcome is known.
        self._reach = leader_id, _HIGHEST_ID
        with self._database.session() as connection:
            statement = self._statements(connection)["mark"]
            with connection.cursor(binary=True, row_factory=_records) as cursor:
                cursor.execute(statement, self._values(leader_id, limit=limit))
                records = cursor.fetchall()
        # An UPDATE returns its rows in any order.
        records.sort()
        self._reach = leader_id, max(reach, records[-1].id if records else 0)
        return records

    def reset(self, leader_id: str, lanes: Sequence[Lane]) -> int:
        # Without a bound the statement reads the whole backlog.
        highest = self._reach_of(leader_id, unseen=_HIGHEST_ID)
        return self._write(
            "reset",
            leader_id,
            highest=highest,
            topics=[topic for topic, _ in lanes],
            keys=[key for _, key in lanes],
        )

    def purge(self, leader_id: str, records: Sequence[Record]) -> int:
        statement = "archive" if self._has_archive else "purge"
        return self._write(statement, leader_id, ids=[record.id for record in records])

    def fail(self, leader_id: str, failures: Sequence[Failure]) -> int:
        return self._write("fail", leader_id, **_failed(failures))

    def park(self, leader_id: str, failures: Sequence[Failure]) -> int:
        return self._write("park", leader_id, **_failed(failures))

    def ping(self) -> None:
        with self._database.session() as connection:
            connection.execute(self._statements(connection)["ping"], {})

    def backlog(self) -> Backlog:
        with self._database.session() as connection:
            statement = self._statements(connection)["backlog"]
            row = connection.execute(statement, {"cap": BACKLOG_CAP}).fetchone()
        records, age = row or (0, None)
        return Backlog(records, records >= BACKLOG_CAP, age or 0.0)

    def close(self) -> None:
        """Drop the connection; the next call makes a new one."""
        self._database.close()

    def _reach_of(self, leader_id: str, *, unseen: int) -> int:
        """Return the highest id that this leader can have marked."""
        known, highest = self._reach
        return highest if known == leader_id else unseen

    def _write(self, name: str, leader_id: str, **values: Any) -> int:
        with self._database.session() as connection:
            statement = self._statements(connection)[name]
            values = self._values(leader_id, **values)
            return connection.execute(statement, values).rowcount

    def _values(self, leader_id: str, **values: Any) -> dict[str, Any]:
        return {"leader_id": leader_id, "source": self._source, **values}

    def _statements(self, connection: Connection) -> Mapping[str, bytes]:
        """Compose the statements for the table as this connection sees it."""
        if self._known is None or self._known[0] is not connection:
            name = identifier(self._table).as_string(None)
            rows = connection.execute(queries()["columns"], {"table": name}).fetchall()
            columns = {row[0] for row in rows}
            statements = dict(compose(self._table, columns))
            if not columns >= _NOTED:
                statements["fail"] = statements["fail_unnoted"]
            self._known = connection, statements
        return self._known[1]


def _records(_cursor: object) -> Callable[[Sequence[Any]], Record]:
    """Row factory of `mark`."""
    return _to_record


def _failed(failures: Sequence[Failure]) -> dict[str, Any]:
    return {
        "ids": [failure.record.id for failure in failures],
        # Postgres has no NUL in a text.
        "errors": [
            failure.error.replace("\0", "")[:ERROR_LENGTH] for failure in failures
        ],
    }
