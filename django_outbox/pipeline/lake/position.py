"""
An id of the outbox up to which every message has been decided.

`backfill.py` asks for it before it takes a snapshot. Ids are given out before
transactions commit, so the last one says nothing by itself: messages with
lower ids may still be invisible. But whoever inserts into the outbox holds a
lock on it from before the id is drawn to the end of the transaction. So:

1. read the last id that was drawn: the position;
2. see who holds that lock;
3. wait until each of those transactions has ended.

A snapshot that is taken then has all that was ever committed with an id up to
the position. It may have more: what was drawn and committed meanwhile.
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

LOOK: Final = 0.5
"""Seconds between two looks at the locks."""

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
    """Where in the outbox's history a snapshot stands."""

    id: int
    """No message with an id up to this one can still become visible."""
    microseconds: int
    """When it was read, since the epoch, by the database's clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """A transaction that may have drawn an id and has not ended."""

    transaction: str
    pid: int | None
    """None when it was prepared for a commit in two phases."""
    seconds: float | None
    """Its age; None when this user may not know it."""
    application: str

    def __str__(self) -> str:
        """Name it as an administrator finds it."""
        if self.pid is None:
            return f"the prepared transaction {self.transaction} (pg_prepared_xacts)"
        age = "" if self.seconds is None else f" for {self.seconds:.0f} s"
        return f"pid {self.pid} ({self.application or 'no application_name'}){age}"


def find_position(
    spark: SparkSession,
    settings: PipelineSettings,
    *,
    timeout: float,
    waiting: Callable[[list[Writer]], None] = lambda _: None,
) -> Position:
    """
    Read the outbox's last id, and wait until all before it is decided.

    Nobody is held up by it; transactions that begin meanwhile are not waited
    for.

    Args:
        timeout: Seconds to wait.
        waiting: Hears before each pause of whom it waits for.

    Raises:
        ConfigurationError: the database is a standby, or the outbox's ids are
            no sequence's, or sessions keep some in store.
        DatabaseError: a transaction did not end in time; names it.
        DatabaseUnavailable: the database does not answer.
    """
    table = jdbc.outbox_table(settings)
    sequence = _sequence(_ask(spark, settings, _SEQUENCE.format(table=table))[0], table)
    (last,) = _ask(spark, settings, _LAST.format(sequence=sequence))
    deadline = time.monotonic() + timeout
    writers = _writers(spark, settings)
    at_first = {writer.transaction for writer in writers}
    # A transaction that is prepared goes on under another name.
    while writers := [w for w in writers if w.transaction in at_first or w.pid is None]:
        if time.monotonic() >= deadline:
            raise DatabaseError(
                f"After {timeout:g} s there are still transactions that have written"
                f" to {table}: {', '.join(map(str, writers))}. Let them end, or wait"
                " for longer (--timeout)."
            )
        waiting(writers)
        time.sleep(min(LOOK, timeout))
        writers = _writers(spark, settings)
    return Position(id=last["id"], microseconds=last["now"])


def _sequence(found: Row, table: str) -> str:
    if found["is_standby"]:
        raise ConfigurationError(
            "database_url: this is a standby, which does not know what is being"
            " written. A backfill needs the primary."
        )
    if found["sequence"] is None:
        raise ConfigurationError(f"table: the ids of {table!r} are no sequence's.")
    if found["cache"] > 1:
        raise ConfigurationError(
            f"table: the sequence {found['sequence']} has CACHE {found['cache']}, so"
            " sessions draw ids before they need them and no position is certain."
            f" ALTER SEQUENCE {found['sequence']} CACHE 1, and let sessions end."
        )
    return str(found["sequence"])


def _writers(spark: SparkSession, settings: PipelineSettings) -> list[Writer]:
    rows = _ask(spark, settings, _WRITERS.format(table=settings.table))
    return [Writer(**row.asDict()) for row in rows]


def _ask(spark: SparkSession, settings: PipelineSettings, text: str) -> list[Row]:
    with jdbc.explained(f"table: {settings.table!r}"):
        return jdbc.query(spark, settings.database_url, text).collect()
