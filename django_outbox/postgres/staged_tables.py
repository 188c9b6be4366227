"""
The tables of delayed messages and series: the relay's port `Staging`.

Each method is one statement, and atomic. All times are the database's.
"""

from __future__ import annotations

from typing import Any

from ..message.record import ExpiredSeries, StagingDeadlines
from .connection import Connection, Database
from .statements import compose, queries, quoted_table


class PostgresStaging:
    """
    Moves due messages out of the staged table, for one thread.

    Args:
        table: name of the outbox table, after which the others are named,
            perhaps with a schema: `sales.outbox`.
        retention: seconds for which a closed series is kept.
    """

    def __init__(self, database: Database, *, table: str, retention: float) -> None:
        self._database = database
        self._statements = compose(table, ())
        self._names = {
            "table": quoted_table(table),
            "staged": quoted_table(table, suffix="_staged"),
            "series": quoted_table(table, suffix="_series"),
        }
        self._retention = retention
        self._known: Connection | None = None
        """The connection that has seen the tables."""

    def agenda(self) -> StagingDeadlines | None:
        with self._database.session() as connection:
            if self._known is not connection:
                found = connection.execute(queries()["has_staging"], self._names)
                if found.fetchone() != (True,):
                    return None
                self._known = connection
            values = {"retention": self._retention}
            row = connection.execute(self._statements["agenda"], values).fetchone()
        assert row is not None, "a SELECT without FROM has one row"
        return StagingDeadlines(*row)

    def release(self, *, limit: int) -> int:
        return self._write("release_due", limit=limit)

    def expire(self, *, limit: int) -> int:
        return self._write("expire_series", limit=limit)

    def clear(self, *, limit: int) -> ExpiredSeries | None:
        values = {"limit": limit, "table": self._names["table"]}
        with self._database.session() as connection:
            statement = self._statements["clear_series"]
            row = connection.execute(statement, values).fetchone()
        return ExpiredSeries(*row) if row else None

    def forget(self, *, limit: int) -> int:
        return self._write("forget_series", limit=limit, retention=self._retention)

    def close(self) -> None:
        """Close the connection; the next call opens a new one."""
        self._database.close()

    def _write(self, name: str, **values: Any) -> int:
        with self._database.session() as connection:
            return connection.execute(self._statements[name], values).rowcount
