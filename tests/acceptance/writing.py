"""
Business transactions against the outbox, in plain SQL, and what they promised.

Writers share the keys: each locks the keys that it writes to until its commit,
so that for one key the order of ids is the order of commits, while between
keys ids and commits disagree: transactions stay open for a while, roll back,
and roll back to savepoints.
"""

from __future__ import annotations

import random
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from types import TracebackType
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

from ..waiting import eventually
from .tables import OutboxTable

KEYS = 40

_LOCK = """
SELECT pg_advisory_xact_lock(hashtextextended(key, 0))
FROM unnest(%s::text[]) AS lane (key)
"""

_INSERT = """
INSERT INTO {} (create_time, kafka_topic, kafka_key, kafka_value,
    kafka_header_keys, kafka_header_values)
VALUES (now(), %s, %s, %s, %s, %s)
RETURNING id, message_id::text
"""


_BURST = """
INSERT INTO {} (create_time, kafka_topic, kafka_key, kafka_value,
    kafka_header_keys, kafka_header_values)
SELECT %(time)s::timestamptz, %(topic)s, key, 'burst ' || n,
    '{{kind,trace}}', ARRAY['test', key]
FROM generate_series(1, %(records)s) AS n,
    LATERAL (SELECT (%(keys)s::text[])[n %% cardinality(%(keys)s::text[]) + 1] AS key)
ORDER BY n
RETURNING id, message_id::text, kafka_key, kafka_value
"""

_BUSINESS = "INSERT INTO business SELECT unnest(%s::uuid[])"
"""What the messages are about: it is there if and only if they are."""


class Promise(NamedTuple):
    """A row of a transaction."""

    id: int
    message_id: str
    key: str
    value: str


@dataclass
class Ledger:
    """What was committed and what was not; filled by several threads."""

    committed: dict[str, Promise] = field(default_factory=dict)
    """By message id."""
    rolled_back: dict[str, Promise] = field(default_factory=dict)
    committed_at: dict[str, float] = field(default_factory=dict)
    """By message id, the wall clock's time when the commit had returned."""


class Writers:
    """
    Threads that write until the block ends, as fast as they are told to.

    Args:
        interval: seconds between two transactions of one writer.
        seed: the same seed draws the same transactions.
        keys: how many different ones.
        prefix: of each key.
    """

    def __init__(
        self,
        table: OutboxTable,
        topic: str,
        *,
        writers: int = 4,
        interval: float = 0.02,
        seed: int = 1,
        keys: int = KEYS,
        prefix: str = "key",
    ) -> None:
        self.ledger = Ledger()
        self._keys = [f"{prefix}-{number}" for number in range(keys)]
        self._table = table
        self._topic = topic
        self._interval = interval
        self._numbers = count(1)
        self._stop = threading.Event()
        self._failures: list[Exception] = []
        self._threads = [
            threading.Thread(
                target=self._guard, args=(random.Random(f"{seed}/{n}"),), daemon=True
            )
            for n in range(writers)
        ]

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
        if exc is None and self._failures:
            raise self._failures[0]

    def wait_for(self, records: int, timeout: float = 60.0) -> None:
        """Return when so many more records are committed than now."""
        goal = len(self.ledger.committed) + records
        eventually(
            lambda: len(self.ledger.committed) >= goal or self._failures,
            timeout=timeout,
            what=lambda: f"{len(self.ledger.committed)} of {goal} committed",
        )

    def burst(self, records: int, *, create_time: str = "now") -> None:
        """
        Commit many records at once, in one transaction over all keys.

        Args:
            create_time: Theirs; no other cluster takes 'infinity' over.

        Raises:
            OperationalError: the server was away, and nothing is committed.
        """
        keys = sorted(self._keys)
        promises: list[Promise] = []
        try:
            with self._table.connect() as connection, connection.transaction():
                connection.execute(_LOCK, [keys])
                rows = connection.execute(
                    sql.SQL(_BURST).format(sql.Identifier(self._table.name)),
                    {
                        "time": create_time,
                        "topic": self._topic,
                        "keys": keys,
                        "records": records,
                    },
                ).fetchall()
                promises = [Promise(*row) for row in rows]
                connection.execute(_BUSINESS, [[p.message_id for p in promises]])
        except psycopg.OperationalError:
            if not promises or not self._is_committed(keys, promises):
                raise
        self._keep(promises)

    def _guard(self, chance: random.Random) -> None:
        try:
            self._write(chance)
        except Exception as error:  # raised again by the block
            self._failures.append(error)

    def _write(self, chance: random.Random) -> None:
        connection: psycopg.Connection[Any] | None = None
        while not self._stop.wait(self._interval * chance.uniform(0.5, 1.5)):
            try:
                if connection is None or connection.closed:
                    connection = self._table.connect()
                self._transact(connection, chance)
            except psycopg.OperationalError:
                # The server is away or has ended the session: begin anew.
                if connection is not None:
                    connection.close()
        if connection is not None:
            connection.close()

    def _transact(
        self, connection: psycopg.Connection[Any], chance: random.Random
    ) -> None:
        """One business transaction."""
        keys = sorted({chance.choice(self._keys) for _ in range(3)})
        kept: list[Promise] = []
        dropped: list[Promise] = []
        try:
            # A rollback that the server no longer answers is passed on.
            with suppress(psycopg.Rollback), connection.transaction():
                connection.execute(_LOCK, [keys])
                for _ in range(chance.randint(1, 6)):
                    kept.append(self._insert(connection, chance.choice(keys)))
                    if chance.random() < 0.15:
                        with connection.transaction(force_rollback=True):
                            dropped.append(
                                self._insert(connection, chance.choice(keys))
                            )
                connection.execute(_BUSINESS, [[p.message_id for p in kept]])
                if chance.random() < 0.25:
                    late = chance.uniform(0.01, 0.15)
                    connection.execute("SELECT pg_sleep(%s)", [late])
                if chance.random() < 0.1:
                    dropped += kept
                    kept = []
                    raise psycopg.Rollback
        except psycopg.OperationalError:
            if not self._is_committed(keys, kept):
                dropped += kept
                kept = []
            raise
        finally:
            self._keep(kept)
            self.ledger.rolled_back.update({p.message_id: p for p in dropped})

    def _insert(self, connection: psycopg.Connection[Any], key: str) -> Promise:
        value = f"{next(self._numbers)} ü"
        statement = sql.SQL(_INSERT).format(sql.Identifier(self._table.name))
        row = connection.execute(
            statement, [self._topic, key, value, ["kind", "trace"], ["test", key]]
        ).fetchone()
        assert row is not None
        return Promise(row[0], row[1], key, value)

    def _keep(self, promises: list[Promise]) -> None:
        self.ledger.committed_at.update(
            dict.fromkeys((p.message_id for p in promises), time.time())
        )
        self.ledger.committed.update({p.message_id: p for p in promises})

    def _is_committed(self, keys: list[str], promises: list[Promise]) -> bool:
        """Ask what became of a transaction whose end nobody has told."""
        found: list[int] = []

        def ask() -> bool:
            try:
                with self._table.connect() as connection, connection.transaction():
                    # Its locks are free when it has ended.
                    connection.execute(_LOCK, [keys])
                    found[:] = connection.execute(
                        "SELECT 1 FROM business WHERE message_id = ANY(%s::uuid[])",
                        [[p.message_id for p in promises]],
                    ).fetchall()
            except psycopg.OperationalError:
                return False
            return True

        eventually(ask, what="the end of a transaction")
        assert len(found) in {0, len(promises)}, "PostgreSQL is not atomic"
        return bool(found)
