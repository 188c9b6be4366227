"""
Several PostgreSQL servers whose outboxes replicate to each other.

Each server publishes the inserts and deletes of its outbox table and
subscribes to those of every other server. The servers start empty: migrate
each, run `manage.py outbox cluster init` for each, then call `connect()`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Final, LiteralString

from .embedded_postgres import EmbeddedPostgres
from .waiting import wait_while_moving

OPTIONS: Final = {
    "wal_level": "logical",
    # The data is disposable; without fsync three servers start in two seconds.
    "fsync": "off",
    # Each server has a worker for every other.
    "max_worker_processes": "40",
    "max_logical_replication_workers": "36",
    "max_replication_slots": "40",
    "max_wal_senders": "40",
    "wal_receiver_status_interval": "1s",
    # How soon a worker reconnects to a server that was down.
    "wal_retrieve_retry_interval": "100ms",
}
"""Options that differ from a single embedded server."""

REPLICATOR: Final = "replicator"
"""Role that may read the publications; it needs no other privilege."""

POLL_INTERVAL: Final = 0.02
"""Seconds between two checks of the state of replication."""

Pair = tuple[int, int]
"""A direction of replication: source and target, by number."""


class Replicas:
    """
    Several servers, numbered from 0; a context manager that ends them all.

    Args:
        count: Number of servers.
        table: Name of the outbox table.
        skews: Seconds by which a server's clock is ahead, by number.
    """

    def __init__(
        self,
        count: int,
        *,
        table: str = "outbox",
        skews: Mapping[int, float] | None = None,
    ) -> None:
        skews = skews or {}
        self._table = table
        self.servers = [
            EmbeddedPostgres(options=OPTIONS, ahead=skews.get(n, 0.0))
            for n in range(count)
        ]
        self.pairs: list[Pair] = [
            (source, target)
            for source in range(count)
            for target in range(count)
            if source != target
        ]
        """All directions of replication."""
        self._members: set[int] = set()
        self._paused: set[Pair] = set()

    def __enter__(self) -> Replicas:
        try:
            with ThreadPoolExecutor(len(self.servers)) as executor:
                list(executor.map(lambda server: server.start(), self.servers))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def urls(self) -> list[str]:
        """Database URLs, by number."""
        return [server.address for server in self.servers]

    def connect(self, members: Iterable[int] | None = None) -> None:
        """Start replication between all servers or some; their tables must exist."""
        before = self._connected()
        chosen = set(range(len(self.servers)) if members is None else members)
        for number in sorted(chosen - self._members):
            self._execute(number, _ROLE.format(**self._names(number)))
            self._execute(number, _PUBLISH.format(**self._names(number)))
        self._members |= chosen
        # One after the other: two servers that subscribe to each other at the same
        # time would wait for each other's transaction.
        for source, target in self._connected():
            if (source, target) not in before:
                names = self._names(source, target)
                self._execute(target, _SUBSCRIBE.format(**names))
        self.wait_until_connected()

    def disconnect(self, number: int) -> None:
        """Disconnect one server; drops the subscriptions of the others to it first."""
        for source, target in sorted(
            self.of(number), key=lambda pair: pair[0] != number
        ):
            self._execute(target, _DROP.format(**self._names(source, target)))
        self._members.discard(number)

    def pause(self, pairs: Iterable[Pair]) -> None:
        """Pause these directions; the targets must run, and changes accumulate."""
        chosen = set(pairs)
        for pair in chosen:
            self._execute(pair[1], _DISABLE.format(**self._names(*pair)))
        self._paused |= chosen
        wait_while_moving(
            lambda: not any(map(self._is_subscribed, chosen)),
            what="replication to pause",
            interval=POLL_INTERVAL,
        )

    def resume(self, pairs: Iterable[Pair] | None = None) -> None:
        """Resume these directions, by default all that are paused."""
        chosen = self._paused if pairs is None else set(pairs)
        for pair in chosen:
            self._execute(pair[1], _ENABLE.format(**self._names(*pair)))
        self._paused = self._paused - chosen
        self.wait_until_connected()

    def of(self, number: int) -> list[Pair]:
        """Return the directions to and from one server."""
        return [pair for pair in self._connected() if number in pair]

    def wait_until_connected(self) -> None:
        """Wait until all directions work that are not paused and whose servers run."""
        wait_while_moving(
            lambda: all(map(self._is_connected, self._working())),
            what="replication to connect",
            interval=POLL_INTERVAL,
        )

    def wait_until_caught_up(self) -> None:
        """Wait until everything that is committed now has been replicated."""
        working = self._working()
        ends = {
            source: self._value(source, "SELECT pg_current_wal_lsn()::text")
            for source in {source for source, _ in working}
        }

        def is_caught_up(pair: Pair) -> bool:
            values = {"name": self._names(*pair)["name"], "end": ends[pair[0]]}
            return bool(self._value(pair[0], _IS_REPLAYED, values))

        wait_while_moving(
            lambda: all(map(is_caught_up, working)),
            what="replication to catch up",
            progress=lambda: [
                self._value(pair[0], _REPLAYED, self._names(*pair)) for pair in working
            ],
            interval=POLL_INTERVAL,
        )

    def conflicts(self) -> int:
        """Return the number of replicated rows whose id existed already."""
        return sum(
            int(self._value(number, _CONFLICTS)) for number in range(len(self.servers))
        )

    def close(self) -> None:
        """End all servers and delete their data."""
        for server in self.servers:
            server.close()

    def _connected(self) -> list[Pair]:
        return [pair for pair in self.pairs if self._members.issuperset(pair)]

    def _working(self) -> list[Pair]:
        running = [server.is_running() for server in self.servers]
        return [
            (source, target)
            for source, target in self._connected()
            if running[source] and running[target]
            if (source, target) not in self._paused
        ]

    def _is_subscribed(self, pair: Pair) -> bool:
        """Whether the target has a worker for this direction."""
        return bool(self._value(pair[1], _HAS_WORKER, self._names(*pair)))

    def _is_connected(self, pair: Pair) -> bool:
        """Whether the source streams in this direction."""
        return bool(self._value(pair[0], _IS_STREAMING, self._names(*pair)))

    def _names(self, source: int, target: int | None = None) -> dict[str, str]:
        from psycopg.conninfo import conninfo_to_dict, make_conninfo

        server = conninfo_to_dict(self.servers[source].address)
        return {
            "table": f'"{self._table}"',
            "publication": f'"{self._table}_of_{source}"',
            "name": f"{self._table}_{source}_to_{target}",
            "password": str(server["password"]),
            "address": make_conninfo("", **{**server, "user": REPLICATOR}),
        }

    def _execute(self, number: int, statement: str) -> None:
        self._value(number, statement)

    def _value(
        self, number: int, query: str, values: Mapping[str, Any] | None = None
    ) -> Any:
        import psycopg

        with psycopg.connect(self.urls[number], autocommit=True) as connection:
            cursor = connection.execute(query.encode(), values)
            row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None


_ROLE: Final[LiteralString] = f"""\
CREATE ROLE {REPLICATOR} LOGIN REPLICATION PASSWORD '{{password}}'"""

_PUBLISH: Final[LiteralString] = """\
CREATE PUBLICATION {publication} FOR TABLE {table} WITH (publish = 'insert, delete')"""

_SUBSCRIBE: Final[LiteralString] = """\
CREATE SUBSCRIPTION "{name}" CONNECTION '{address}' PUBLICATION {publication}
WITH (origin = none, copy_data = false)"""

_DROP: Final[LiteralString] = 'DROP SUBSCRIPTION "{name}"'
_DISABLE: Final[LiteralString] = 'ALTER SUBSCRIPTION "{name}" DISABLE'
_ENABLE: Final[LiteralString] = 'ALTER SUBSCRIPTION "{name}" ENABLE'

_HAS_WORKER: Final[LiteralString] = """\
SELECT EXISTS (
    SELECT FROM pg_stat_subscription WHERE subname = %(name)s AND pid IS NOT NULL
)"""

_IS_STREAMING: Final[LiteralString] = """\
SELECT EXISTS (
    SELECT FROM pg_stat_replication
    WHERE application_name = %(name)s AND state = 'streaming'
)"""

_IS_REPLAYED: Final[LiteralString] = """\
SELECT EXISTS (
    SELECT FROM pg_stat_replication
    WHERE application_name = %(name)s AND replay_lsn >= %(end)s::pg_lsn
)"""

_REPLAYED: Final[LiteralString] = """\
SELECT max(replay_lsn)::text FROM pg_stat_replication
WHERE application_name = %(name)s"""

_CONFLICTS: Final[LiteralString] = """\
SELECT coalesce(sum(confl_insert_exists + confl_multiple_unique_conflicts), 0)::bigint
FROM pg_stat_subscription_stats"""
