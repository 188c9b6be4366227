"""Servers that are clusters: migrated by the project, with ids of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg

from django_outbox.devstack.replication import Replicas
from tests.acceptance.tables import project_environment
from tests.processes import manage


class Sites:
    """What tests ask of servers that replicate to each other."""

    def __init__(
        self, replicas: Replicas, variables: Mapping[str, str] | None = None
    ) -> None:
        self.replicas = replicas
        self._variables = variables or {}
        self.count = len(replicas.servers)
        """Clusters; the servers behind them have not joined yet."""

    def environment(self, number: int) -> dict[str, str]:
        """What leads a process to one cluster."""
        return {
            **project_environment(),
            "DATABASE_URL": self.replicas.urls[number],
            "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
            "OUTBOX_CLUSTER_ID": str(number),
            "OUTBOX_CLUSTERS_COUNT": str(self.count),
            **self._variables,
        }

    def manage(self, number: int, *arguments: str) -> str:
        """Run a command of the example project in one cluster."""
        return manage(*arguments, environment=self.environment(number))

    def sql(self, number: int, query: str, values: Any = None) -> list[Any]:
        """Run a statement in one cluster; return the rows, as values if of one."""
        with psycopg.connect(self.replicas.urls[number], autocommit=True) as connection:
            cursor = connection.execute(query.encode(), values)
            rows = cursor.fetchall() if cursor.description else []
        return [row[0] if len(row) == 1 else row for row in rows]

    def write(self, number: int, rows: int, *, key: str = "k") -> list[int]:
        """Write rows by plain SQL, each in its own transaction; return their ids."""
        with psycopg.connect(self.replicas.urls[number], autocommit=True) as connection:
            ids = [
                connection.execute(
                    "INSERT INTO outbox (kafka_topic, kafka_key, kafka_value)"
                    " VALUES ('t', %s, %s) RETURNING id",
                    [key, f"{number}/{n}"],
                ).fetchone()
                for n in range(rows)
            ]
        return [row[0] for row in ids if row]

    def everywhere(self, query: str) -> list[list[Any]]:
        """Run a query in every cluster."""
        return [self.sql(number, query) for number in range(self.count)]

    def at_once(self, work: Any) -> Sequence[Any]:
        """Do something for every cluster at the same time."""
        with ThreadPoolExecutor(self.count) as executor:
            return list(executor.map(work, range(self.count)))


@contextmanager
def sites(
    count: int,
    *,
    variables: Mapping[str, str] | None = None,
    joined: int | None = None,
    **options: Any,
) -> Iterator[Sites]:
    """
    Start servers, make them clusters, and let them replicate.

    Args:
        count: how many.
        variables: of the environment of every process of theirs.
        joined: how many of them are clusters at first; by default all.
        options: of the servers.
    """
    with Replicas(count, **options) as replicas:
        clusters = Sites(replicas, variables)
        clusters.count = joined or count
        clusters.at_once(lambda number: clusters.manage(number, "migrate", "-v0"))
        clusters.at_once(
            lambda number: clusters.manage(number, "outbox", "cluster", "init")
        )
        replicas.connect(range(clusters.count))
        yield clusters
