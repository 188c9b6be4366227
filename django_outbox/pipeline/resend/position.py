"""
Finds an id of the outbox up to which every message is committed or rolled back.

Transactions draw ids before they commit, so messages with ids below the last
one may still be invisible. But each transaction that inserts into the outbox
holds a lock on the table from before it draws an id until it ends. So:

1. read the last id that was drawn: the position;
2. list the transactions that hold the lock;
3. wait until each of them has ended.

A snapshot taken after that contains every message with an id up to the
position that is ever committed. It may contain more: messages that were
written and committed during the wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ...exceptions import ConfigurationError, DatabaseError
from ..audit import jdbc

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

    from ..pipeline_settings import PipelineSettings

POLL_INTERVAL: Final = 0.5
"""Seconds between two queries for the locks."""

_SEQUENCE: Final = """\
SELECT pg_is_in_recovery() AS is_standby, seqrelid::regclass::text AS sequence,
    seqcache AS cache
FROM (SELECT pg_get_serial_sequence('{table}', 'id')::regclass AS own) AS found
LEFT JOIN pg_sequence ON seqrelid = own"""

_LAST: Final = """\
SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END AS id,
    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now
FROM {sequence}"""

_WRITERS: Final = """\
SELECT virtualtransaction AS transaction, pid,
    extract(epoch FROM clock_timestamp() - xact_start)::float8 AS seconds,
    application_name AS application
FROM pg_locks LEFT JOIN pg_stat_activity USING (pid)
WHERE locktype = 'relation' AND relation = '{table}'::regclass
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
AND mode = 'RowExclusiveLock' AND granted"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The point in the outbox's history that a snapshot belongs to."""

    id: int
    """No further message with an id up to this one can become visible."""
    microseconds: int
    """Database time of the reading, in microseconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenWriter:
    """An open transaction that may have drawn an id."""

    transaction: str
    pid: int | None
    """None for a prepared transaction (two-phase commit)."""
    seconds: float | None
    """Age; None if this user lacks the privilege to see it."""
    application: str

    def __str__(self) -> str:
        """Describe it with what an administrator can search for."""
        if self.pid is None:
            return f"the prepared transaction {self.transaction} (pg_prepared_xacts)"
        age = "" if self.seconds is None else f" for {self.seconds:.0f} s"
        return f"pid {self.pid} ({self.application or 'no application_name'}){age}"


def find_position(
    spark: SparkSession,
    settings: PipelineSettings,
    *,
    timeout: float,
    waiting: Callable[[list[OpenWriter]], None] = lambda _: None,
) -> Position:
    """
    Read the outbox's last id, and wait for the transactions that may be below it.

    Blocks no other session, and does not wait for transactions that begin later.

    Args:
        timeout: Seconds to wait.
        waiting: Called before each pause with the transactions that are open.

    Raises:
        ConfigurationError: the database is a standby, or the outbox's ids do not
            come from a sequence, or sessions cache ids.
        DatabaseError: a transaction did not end in time; names it.
        DatabaseUnavailable: the database cannot be reached.
    """
    table = jdbc.outbox_table(settings)
    sequence = _sequence(_ask(spark, settings, _SEQUENCE.format(table=table))[0], table)
    (last,) = _ask(spark, settings, _LAST.format(sequence=sequence))
    deadline = time.monotonic() + timeout
    writers = _writers(spark, settings)
    at_first = {writer.transaction for writer in writers}
    # A transaction gets another name when it is prepared.
    while writers := [w for w in writers if w.transaction in at_first or w.pid is None]:
        if time.monotonic() >= deadline:
            raise DatabaseError(
                f"After {timeout:g} s, transactions that wrote to {table} are still"
                f" open: {', '.join(map(str, writers))}. End them, or wait longer"
                " (--timeout)."
            )
        waiting(writers)
        time.sleep(min(POLL_INTERVAL, timeout))
        writers = _writers(spark, settings)
    return Position(id=last["id"], microseconds=last["now"])


def _sequence(found: Row, table: str) -> str:
    if found["is_standby"]:
        raise ConfigurationError(
            "database_url: this server is a standby, which cannot see open"
            " transactions of the primary. A backfill needs the primary."
        )
    if found["sequence"] is None:
        raise ConfigurationError(
            f"table: the ids of {table!r} must come from a sequence."
        )
    if found["cache"] > 1:
        raise ConfigurationError(
            f"table: the sequence {found['sequence']} has CACHE {found['cache']}, so"
            " sessions may use ids below the position later. Run ALTER SEQUENCE"
            f" {found['sequence']} CACHE 1, and reconnect all sessions."
        )
    return str(found["sequence"])


def _writers(spark: SparkSession, settings: PipelineSettings) -> list[OpenWriter]:
    rows = _ask(spark, settings, _WRITERS.format(table=settings.table))
    return [OpenWriter(**row.asDict()) for row in rows]


def _ask(spark: SparkSession, settings: PipelineSettings, text: str) -> list[Row]:
    with jdbc.explained(f"table: {settings.table!r}"):
        return jdbc.query(spark, settings.database_url, text).collect()
