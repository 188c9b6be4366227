"""
One table to try a scenario on: in memory, or in Postgres.

Each class says how a test writes rows and looks at them; what a leader does
goes through the adapter that `open()` gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

import psycopg
from psycopg.rows import TupleRow

from django_outbox.message.record import Backlog, TopicCounts
from django_outbox.postgres.connection import Database
from django_outbox.postgres.marked_table import PostgresOutbox
from django_outbox.relay.ports import Outbox
from tests.fakes.outbox import InMemoryOutbox, InMemoryTable

Header = tuple[str, str | None]
FakeT = TypeVar("FakeT", bound=InMemoryTable)

PAGE_BYTES = 1000
"""Of the values of one page."""


class Adapter(Outbox, Protocol):
    """All ports of a table."""

    def backlog(self) -> Backlog: ...

    def topics(self, *, limit: int) -> TopicCounts: ...

    def close(self) -> None: ...


class MemoryRows(Generic[FakeT]):
    """How a test writes into a table in memory."""

    def __init__(self, fake: type[FakeT]) -> None:
        self._now = 1_800_000_000.0
        self._table = fake(
            has_archive=True, page_bytes=PAGE_BYTES, clock=lambda: self._now
        )

    def insert(
        self,
        key: str = "k",
        value: str | bytes | None = "v",
        *,
        topic: str = "t",
        headers: Sequence[Header] = (),
        partition: int | None = None,
    ) -> int:
        return self._table.insert(
            topic, key, value, headers=headers, partition=partition
        ).id

    def insert_aged(self, seconds: float) -> int:
        self._now -= seconds
        record = self._table.insert("t", "k")
        self._now += seconds
        return record.id

    @contextmanager
    def insert_late(self, key: str = "k") -> Iterator[int]:
        """Draw an id now, commit its row at the end."""
        number = self._table.draw_id()
        yield number
        self._table.insert("t", key, record_id=number)

    def mend(self, number: int, *, topic: str, key: str) -> None:
        """Change a row as an operator does."""
        row = self._table._rows[number]
        row.record = row.record._replace(topic=topic, key=key)

    def pause(self, topic: str, key: str | None = None) -> None:
        self._table.paused.append((topic, key))

    def marks(self) -> dict[int, str | None]:
        return dict(self._table.marks())

    def errors(self) -> dict[int, tuple[int, str]]:
        attempts = {record.id: record.attempts for record in self._table.records()}
        return {n: (attempts[n], text) for n, text in self._table.errors().items()}

    def parked(self) -> list[tuple[int, int, str]]:
        return [(r.id, r.attempts, error) for r, error in self._table.parked]

    def archived(self) -> list[int]:
        return [record.id for record in self._table.archived]

    def disconnect(self) -> None:
        self._table.is_down = True

    def reconnect(self) -> None:
        self._table.is_down = False

    def close(self) -> None: ...


class MemoryTable(MemoryRows[InMemoryOutbox]):
    """The fake."""

    def __init__(self) -> None:
        super().__init__(InMemoryOutbox)

    def open(self) -> Adapter:
        return self._table


class PostgresTable:
    """The real one, as `migrate` makes it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection = psycopg.connect(url, autocommit=True)
        self._opened: list[PostgresOutbox] = []

    def open(self) -> Adapter:
        database = Database({"conninfo": self._url}, application_name="contract")
        self._opened.append(
            PostgresOutbox(database, has_archive=True, page_bytes=PAGE_BYTES)
        )
        return self._opened[-1]

    def insert(
        self,
        key: str = "k",
        value: str | bytes | None = "v",
        *,
        topic: str = "t",
        headers: Sequence[Header] = (),
        partition: int | None = None,
    ) -> int:
        is_text = isinstance(value, str)
        return self._one(
            "INSERT INTO outbox (kafka_topic, kafka_key, kafka_value,"
            " kafka_value_bytes, kafka_header_keys, kafka_header_values,"
            " kafka_partition) VALUES (%s, %s, %s, %s, %s, %s, %s) RETURNING id",
            topic,
            key,
            value if is_text else None,
            None if is_text else value,
            [name for name, _ in headers],
            [text for _, text in headers],
            partition,
        )

    def insert_aged(self, seconds: float) -> int:
        return self._one(
            "INSERT INTO outbox (create_time, kafka_topic, kafka_key)"
            " VALUES (now() - make_interval(secs => %s), 't', 'k') RETURNING id",
            seconds,
        )

    @contextmanager
    def insert_late(self, key: str = "k") -> Iterator[int]:
        """Draw an id now, commit its row at the end."""
        with psycopg.connect(self._url) as connection:
            row = connection.execute(
                "INSERT INTO outbox (kafka_topic, kafka_key)"
                " VALUES ('t', %s) RETURNING id",
                [key],
            ).fetchone()
            assert row is not None
            yield row[0]

    def mend(self, number: int, *, topic: str, key: str) -> None:
        """Change a row as an operator does."""
        self._connection.execute(
            "UPDATE outbox SET kafka_topic = %s, kafka_key = %s WHERE id = %s",
            [topic, key, number],
        )

    def pause(self, topic: str, key: str | None = None) -> None:
        self._connection.execute(
            "INSERT INTO outbox_pauses (kafka_topic, kafka_key) VALUES (%s, %s)",
            [topic, key],
        )

    def marks(self) -> dict[int, str | None]:
        return dict(self._all("SELECT id, leader_id::text FROM outbox ORDER BY id"))

    def errors(self) -> dict[int, tuple[int, str]]:
        rows = self._all("SELECT id, attempts, last_error FROM outbox ORDER BY id")
        return {number: (attempts, error) for number, attempts, error in rows}

    def parked(self) -> list[tuple[int, int, str]]:
        rows = self._all("SELECT id, attempts, last_error FROM outbox_parked")
        return [(number, attempts, error) for number, attempts, error in rows]

    def archived(self) -> list[int]:
        return [n for (n,) in self._all("SELECT id FROM outbox_archive ORDER BY id")]

    def disconnect(self) -> None:
        self._all(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE application_name = 'contract' AND datname = current_database()"
        )

    def reconnect(self) -> None: ...

    def close(self) -> None:
        for outbox in self._opened:
            outbox.close()
        self._connection.close()

    def _all(self, query: str, *values: object) -> list[TupleRow]:
        return self._connection.execute(query, values).fetchall()

    def _one(self, query: str, *values: object) -> int:
        return int(self._all(query, *values)[0][0])


Table = MemoryTable | PostgresTable
