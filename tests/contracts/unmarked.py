"""
One table that nobody marks, to try a scenario on: in memory, or in Postgres.

As in `tables.py`, each class says how a test writes rows and looks at them.
Here a test also holds transactions open.
"""

from __future__ import annotations

from typing import Any, Protocol

import psycopg

from django_outbox.message.pauses import Pauses
from django_outbox.message.record import Backlog
from django_outbox.postgres.connection import Database
from django_outbox.postgres.shard_sql import ShardScope
from django_outbox.postgres.unmarked_table import UnmarkedOutbox
from django_outbox.relay.ports import SettledTable, UnmarkedTable
from tests.fakes.unmarked import InMemoryTransaction, InMemoryUnmarked

from .tables import PAGE_BYTES, MemoryRows, PostgresTable


class Adapter(UnmarkedTable, SettledTable, Protocol):
    """All ports of such a table."""

    def backlog(self) -> Backlog: ...

    def database_timeline(self) -> str: ...

    def pauses(self) -> Pauses: ...

    def ping(self) -> None: ...

    def close(self) -> None: ...


class Writer(Protocol):
    """A transaction of the application that a test ends when it likes."""

    def insert(self, key: str = "k") -> int: ...

    def prepare(self) -> None: ...

    def commit(self) -> None: ...

    def rollback(self) -> None: ...


class MemoryUnmarked(MemoryRows[InMemoryUnmarked]):
    """The fake."""

    def __init__(self) -> None:
        super().__init__(InMemoryUnmarked)

    def open(self) -> Adapter:
        return self._table

    def open_shard(self, shard: int, shards: int) -> Adapter:
        return self._table.of_shard(shard, shards)

    def begin(self) -> Writer:
        return _MemoryWriter(self._table.begin())

    def insert_by_hand(self, number: int, key: str = "k") -> int:
        return self._table.insert("t", key, "v", record_id=number).id

    def ids(self) -> list[int]:
        return [record.id for record in self._table.records()]

    def delete(self, number: int) -> None:
        records = [r for r in self._table.records() if r.id == number]
        self._table.purge("", records)


class _MemoryWriter:
    def __init__(self, transaction: InMemoryTransaction) -> None:
        self._transaction = transaction
        self.prepare = transaction.prepare
        self.commit = transaction.commit
        self.rollback = transaction.rollback

    def insert(self, key: str = "k") -> int:
        return self._transaction.insert("t", key, "v").id


class PostgresUnmarked(PostgresTable):
    """The real one, as `migrate` makes it."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._writers: list[PostgresWriter] = []

    def open(self, scope: ShardScope | None = None) -> Any:
        database = Database({"conninfo": self._url}, application_name="contract")
        adapter: Any = UnmarkedOutbox(
            database, has_archive=True, page_bytes=PAGE_BYTES, scope=scope
        )
        self._opened.append(adapter)
        return adapter

    def open_shard(self, shard: int, shards: int) -> Any:
        return self.open(ShardScope(shard=shard, shards=shards))

    def begin(self) -> Writer:
        self._writers.append(PostgresWriter(self._url))
        return self._writers[-1]

    def insert_by_hand(self, number: int, key: str = "k") -> int:
        return self._one(
            "INSERT INTO outbox (id, kafka_topic, kafka_key, kafka_value)"
            " VALUES (%s, 't', %s, 'v') RETURNING id",
            number,
            key,
        )

    def ids(self) -> list[int]:
        return [n for (n,) in self._all("SELECT id FROM outbox ORDER BY id")]

    def delete(self, number: int) -> None:
        self._one("DELETE FROM outbox WHERE id = %s RETURNING id", number)

    @property
    def has_prepared_transactions(self) -> bool:
        return self._one("SELECT current_setting('max_prepared_transactions')::int") > 0

    def close(self) -> None:
        for writer in self._writers:
            writer.close()
        super().close()


class PostgresWriter:
    """A connection with one transaction."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url)
        self._prepared = ""

    def insert(self, key: str = "k") -> int:
        row = self._connection.execute(
            "INSERT INTO outbox (kafka_topic, kafka_key, kafka_value)"
            " VALUES ('t', %s, 'v') RETURNING id",
            [key],
        ).fetchone()
        assert row is not None
        return int(row[0])

    def prepare(self) -> None:
        self._prepared = "contract"
        self._connection.execute("PREPARE TRANSACTION 'contract'")
        self._connection.autocommit = True

    def commit(self) -> None:
        if self._prepared:
            self._connection.execute("COMMIT PREPARED 'contract'")
            self._prepared = ""
        else:
            self._connection.commit()

    def rollback(self) -> None:
        if self._prepared:
            self._connection.execute("ROLLBACK PREPARED 'contract'")
            self._prepared = ""
        else:
            self._connection.rollback()

    def close(self) -> None:
        self.rollback()
        self._connection.close()


Unmarked = MemoryUnmarked | PostgresUnmarked
