"""
What keeps the table small: deleted rows, dropped partitions, or TRUNCATE.

The table alone, without Kafka: a writer inserts, a reader reads pages in the order of
ids and gives back the room of what it has read. Another session has a transaction with
a message open at each moment, half a second each, as business transactions are. Every
way has the columns, indexes and storage settings of the outbox.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import ClassVar, Final, TypeAlias

import psutil
import psycopg
from psycopg.errors import LockNotAvailable

from .naive import DELETE, PAGE_ROWS, ROWS
from .pinned import FREE, PINNED, old_transaction
from .readings import percentile
from .servers import connect
from .session import Session
from .sides import in_turn
from .workload import empty

NAME = "swelling"

Guard: TypeAlias = Callable[[], AbstractContextManager[object]]

TRANSACTION: Final = 100
"""Rows that the writer commits together."""

PARTITION: Final = 100_000
"""Ids of one partition."""

HELD_OPEN: Final = 0.5
"""Seconds for which the transaction of another session stays open."""

RATE: Final = 20_000
"""Rows a second: ten times as many as an outbox with 2,000 records a second has."""

NAPTIME: Final = 6
"""Seconds between two looks of autovacuum, which are a minute by default."""

LOCK_TIMEOUT: Final = "SET lock_timeout = '50ms'"
"""Longer, and all that insert would wait for whom the lock waits."""

_INSERT: Final = """
INSERT INTO {table} (create_time, kafka_topic, kafka_key, kafka_value,
                    kafka_header_keys, kafka_header_values)
SELECT now(), 'bench', 'key-' || n % 1000, repeat('x', 200), '{{}}', '{{}}'
FROM generate_series(1, {rows}) AS n
"""

COPY: Final = "outbox_copy"
"""A table with the outbox's columns."""

_BYTES: Final = """
SELECT coalesce(sum(pg_total_relation_size(relid)), pg_total_relation_size(%(table)s))
FROM pg_partition_tree(%(table)s)
"""


class Way(ABC):
    """How a table gives room back; the reader calls it after each page."""

    name: ClassVar[str]
    table: ClassVar[str] = COPY
    divided: ClassVar[str] = ""
    """How the table is divided into partitions, if it is."""

    def make(self, connection: psycopg.Connection, rows: int) -> None:
        """Create the table, for so many rows."""
        _drop_copy(connection)
        connection.execute(
            f"CREATE TABLE {COPY} (LIKE outbox INCLUDING ALL EXCLUDING IDENTITY)"
            f" {self.divided}"
        )
        connection.execute(f"CREATE SEQUENCE {COPY}_id OWNED BY {COPY}.id")
        connection.execute(
            f"ALTER TABLE {COPY} ALTER COLUMN id SET DEFAULT nextval('{COPY}_id')"
        )

    @abstractmethod
    def free(self, connection: psycopg.Connection, ids: list[int]) -> None:
        """Give back the room of a page, or of what was read before."""

    def close(self) -> None:  # noqa: B027  # most have nothing to wait for
        """Wait for what runs beside the reader."""


class Delete(Way):
    """What the relay does."""

    name = "DELETE"
    table = "outbox"

    def make(self, connection: psycopg.Connection, rows: int) -> None:
        empty()

    def free(self, connection: psycopg.Connection, ids: list[int]) -> None:
        connection.execute(DELETE, [ids])


class Truncate(Way):
    """Empty the table when all of it was read, and nobody has it locked."""

    name = "TRUNCATE"

    def make(self, connection: psycopg.Connection, rows: int) -> None:
        super().make(connection, rows)
        connection.execute(LOCK_TIMEOUT)
        self._kept = 0

    def free(self, connection: psycopg.Connection, ids: list[int]) -> None:
        self._kept += len(ids)
        if self._kept < PARTITION:
            return
        self._kept = 0
        with suppress(LockNotAvailable), connection.transaction():
            connection.execute(f"LOCK TABLE {self.table} IN ACCESS EXCLUSIVE MODE")
            row = connection.execute(f"SELECT max(id) FROM {self.table}").fetchone()
            if row == (max(ids),):
                connection.execute(f"TRUNCATE {self.table}")


class Drop(Way):
    """Drop a partition of ids when all of it was read."""

    name = "DROP of partitions"
    divided = "PARTITION BY RANGE (id)"

    def make(self, connection: psycopg.Connection, rows: int) -> None:
        super().make(connection, rows)
        for number in range(2 * rows // PARTITION + 2):
            low = number * PARTITION
            connection.execute(
                f"CREATE TABLE {self.table}_{number} PARTITION OF {self.table}"
                f" FOR VALUES FROM ({low}) TO ({low + PARTITION})"
            )
        self._first = 0
        # DETACH CONCURRENTLY waits for all transactions that use the table.
        self._dropper = ThreadPoolExecutor(1)
        self._dropped: list[Future[None]] = []

    def free(self, connection: psycopg.Connection, ids: list[int]) -> None:
        # Of the partition before, a transaction may still be open.
        first, self._first = self._first, max(max(ids) // PARTITION - 1, 0)
        for number in range(first, self._first):
            part = f"{self.table}_{number}"
            self._dropped.append(self._dropper.submit(self._drop, part))

    def _drop(self, part: str) -> None:
        with connect() as connection:
            connection.execute(
                f"ALTER TABLE {self.table} DETACH PARTITION {part} CONCURRENTLY"
            )
            connection.execute(f"DROP TABLE {part}")

    def close(self) -> None:
        self._dropper.shutdown()
        for dropped in self._dropped:
            dropped.result()


WAYS: Final = (Delete, Truncate, Drop)


def run(session: Session) -> None:
    with _quick_autovacuum():
        for case, guard in ((FREE, nullcontext), (PINNED, old_transaction)):

            def play(way: type[Way], case: str = case, guard: Guard = guard) -> None:
                with guard():
                    figures = Course(way(), session.scale.dead).run()
                for figure, (value, unit) in figures.items():
                    session.book.note(NAME, case, way.name, value, unit, figure=figure)

            in_turn(WAYS, session.rounds, play)


class Course:
    """One way, from the first row that is written to the last that is read."""

    def __init__(self, way: Way, rows: int) -> None:
        self._way = way
        self._rows = rows
        self._inserts: list[float] = []
        self._pages: list[float] = []
        self._most = 0
        self._is_over = threading.Event()

    def run(self) -> dict[str, tuple[float, str]]:
        """Return the figures, each with its unit."""
        with connect() as connection:
            self._way.make(connection, self._rows)
            connection.execute("CHECKPOINT")
            log, cpu = _log_position(connection), _server_cpu(connection)
            with ThreadPoolExecutor(3) as pool:
                others = [pool.submit(self._write), pool.submit(self._measure)]
                others.append(pool.submit(self._hold_open))
                try:
                    self._read(connection)
                finally:
                    self._is_over.set()
                for other in others:
                    other.result()
            self._way.close()
            log = _log_position(connection) - log
            cpu = _server_cpu(connection) - cpu
        return {
            "largest size": (self._most / 1e6, "MB"),
            "log a record": (log / self._rows, "bytes"),
            "server's CPU a record": (1e6 * cpu / self._rows, "µs"),
            "page p99": (1000 * percentile(self._pages, 0.99), "ms"),
            "longest insert": (1000 * max(self._inserts), "ms"),
        }

    def _write(self) -> None:
        statement = _INSERT.format(table=self._way.table, rows=TRANSACTION)
        due = time.monotonic()
        with connect() as connection:
            for _ in range(self._rows // TRANSACTION):
                self._is_over.wait(max(0.0, due - time.monotonic()))
                due += TRANSACTION / RATE
                began = time.monotonic()
                connection.execute(statement)
                self._inserts.append(time.monotonic() - began)

    def _hold_open(self) -> None:
        statement = _INSERT.format(table=self._way.table, rows=1)
        with connect() as connection:
            while not self._is_over.is_set():
                with suppress(psycopg.Rollback), connection.transaction():
                    connection.execute(statement)
                    self._is_over.wait(HELD_OPEN)
                    raise psycopg.Rollback

    def _measure(self) -> None:
        with connect() as connection:
            while not self._is_over.wait(0.2):
                row = connection.execute(_BYTES, {"table": self._way.table}).fetchone()
                self._most = max(self._most, int(row[0]) if row else 0)

    def _read(self, connection: psycopg.Connection) -> None:
        statement = ROWS.replace("FROM outbox", f"FROM {self._way.table}")
        read = position = 0
        with connection.cursor(binary=True) as cursor:
            while read < self._rows:
                began = time.monotonic()
                found = cursor.execute(statement, [position, PAGE_ROWS]).fetchall()
                self._pages.append(time.monotonic() - began)
                if not found:
                    self._is_over.wait(0.002)
                    continue
                ids = [row[0] for row in found]
                read, position = read + len(ids), ids[-1]
                self._way.free(connection, ids)


@contextmanager
def _quick_autovacuum() -> Iterator[None]:
    with connect() as connection:
        connection.execute(f"ALTER SYSTEM SET autovacuum_naptime = {NAPTIME}")
        connection.execute("SELECT pg_reload_conf()")
        try:
            yield
        finally:
            connection.execute("ALTER SYSTEM RESET autovacuum_naptime")
            connection.execute("SELECT pg_reload_conf()")
            _drop_copy(connection)


def _drop_copy(connection: psycopg.Connection) -> None:
    connection.execute(f"DROP TABLE IF EXISTS {COPY}")


def _log_position(connection: psycopg.Connection) -> int:
    row = connection.execute("SELECT pg_current_wal_lsn() - '0/0'").fetchone()
    assert row
    return int(row[0])


def _server_cpu(connection: psycopg.Connection) -> float:
    """Return the CPU seconds of all processes that the server has had."""
    row = connection.execute("SHOW data_directory").fetchone()
    assert row
    pid = Path(row[0], "postmaster.pid").read_text("ascii").splitlines()[0]
    server = psutil.Process(int(pid))
    ended = server.cpu_times()
    seconds = ended.children_user + ended.children_system
    for process in (server, *server.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            seconds += times.user + times.system
    return seconds
