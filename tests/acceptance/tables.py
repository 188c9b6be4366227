"""
Databases of the acceptance tests: each test has one, with the project's tables.

`manage.py migrate` makes one template a server; each database is a copy.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, LiteralString
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import psycopg
from psycopg import sql

from django_outbox.devstack.waiting import wait_while_moving

from ..processes import manage
from ..waiting import eventually


def project_environment() -> dict[str, str]:
    """This process's environment without what is meant for its own Django."""
    return {
        name: text
        for name, text in os.environ.items()
        if name != "DJANGO_SETTINGS_MODULE" and not name.startswith("OUTBOX_")
    }


class Server:
    """A PostgreSQL server that databases are made on."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._templates: dict[str, str] = {}

    def create(self, *, table: str = "outbox", name: str = "") -> OutboxTable:
        """Make a database with empty tables, the outbox under this name."""
        if table not in self._templates:
            self._templates[table] = self._make_template(table)
        name = name or new_name()
        self._administer("CREATE DATABASE {} TEMPLATE {}", name, self._templates[table])
        made = OutboxTable(self._url_of(name), table)
        # Another outbox than that of every other test.
        made.execute("UPDATE {identity} SET outbox = gen_random_uuid()")
        return made

    def create_empty(self) -> OutboxTable:
        """Make a database without tables, for a project that migrates it itself."""
        made = self.missing()
        self._administer("CREATE DATABASE {}", made.database)
        return made

    def missing(self, *, table: str = "outbox") -> OutboxTable:
        """Name a database that does not exist yet."""
        return OutboxTable(self._url_of(new_name()), table)

    def copy(self, table: OutboxTable) -> OutboxTable:
        """Copy a database to which nobody is connected, as a restored dump would be."""
        name = new_name()
        self._administer("CREATE DATABASE {} TEMPLATE {}", name, table.database)
        return OutboxTable(self._url_of(name), table.name)

    def rename(self, table: OutboxTable) -> OutboxTable:
        """Rename a database to which nobody is connected."""
        name = new_name()
        self._administer("ALTER DATABASE {} RENAME TO {}", table.database, name)
        return OutboxTable(self._url_of(name), table.name)

    def drop(self, table: OutboxTable) -> None:
        self._administer("DROP DATABASE IF EXISTS {} WITH (FORCE)", table.database)

    def close(self) -> None:
        for name in self._templates.values():
            self._administer("DROP DATABASE {} WITH (FORCE)", name)

    def _make_template(self, table: str) -> str:
        name = f"template_{uuid4().hex}"
        self._administer("CREATE DATABASE {}", name)
        manage(
            *("migrate", "--verbosity", "0"),
            environment={
                **project_environment(),
                "DATABASE_URL": self._url_of(name),
                # The project's checks want an address; nobody connects to it.
                "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
                "OUTBOX_TABLE": table,
            },
        )
        with psycopg.connect(self._url_of(name), autocommit=True) as connection:
            connection.execute("CREATE TABLE business (message_id uuid PRIMARY KEY)")
        return name

    def _administer(self, statement: LiteralString, *names: str) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))

    def _url_of(self, name: str) -> str:
        return urlunsplit(urlsplit(self._url)._replace(path=f"/{name}"))


def new_name() -> str:
    """Name a database that nobody has."""
    return f"acceptance_{uuid4().hex}"


class OutboxTable:
    """One outbox table, as plain SQL sees it."""

    def __init__(self, url: str, name: str) -> None:
        self.url = url
        self.name = name

    @property
    def database(self) -> str:
        """The name of its database."""
        return urlsplit(self.url).path.strip("/")

    @property
    def identity(self) -> str:
        """Which outbox it is: the digits that stand in names."""
        ((outbox,),) = self.execute("SELECT outbox FROM {identity}")
        return str(outbox.hex[:12])

    def in_schema(self, schema: str) -> OutboxTable:
        """Return the table of this name in a schema of the same database."""
        return OutboxTable(f"{self.url}?options=-csearch_path%3D{schema}", self.name)

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.url, autocommit=True, connect_timeout=5)

    def execute(
        self, statement: str, values: Mapping[str, Any] | None = None
    ) -> list[tuple[Any, ...]]:
        """Run one statement on the table `{outbox}`; return its rows, if any."""
        composed = sql.SQL(statement).format(
            outbox=sql.Identifier(self.name),
            parked=sql.Identifier(f"{self.name}_parked"),
            archive=sql.Identifier(f"{self.name}_archive"),
            identity=sql.Identifier(f"{self.name}_identity"),
        )
        with self.connect() as connection:
            cursor = connection.execute(composed, values)
            return cursor.fetchall() if cursor.description else []

    def insert(  # the columns of the contract
        self,
        topic: str,
        key: str,
        value: str | None = "a value",
        *,
        count: int = 1,
        headers: tuple[tuple[str, str], ...] = (),
        partition: int | None = None,
        raw: bytes | None = None,
    ) -> list[int]:
        """Insert rows in one transaction, as the contract shows it; their ids."""
        rows = self.execute(
            """
            INSERT INTO {outbox} (create_time, kafka_topic, kafka_key, kafka_value,
                kafka_header_keys, kafka_header_values, kafka_partition,
                kafka_value_bytes)
            SELECT now(), %(topic)s, %(key)s, %(value)s, %(names)s::text[],
                %(texts)s::text[], %(partition)s, %(raw)s
            FROM generate_series(1, %(count)s)
            RETURNING id
            """,
            {
                "topic": topic,
                "key": key,
                "value": value,
                "names": [name for name, _ in headers],
                "texts": [text for _, text in headers],
                "partition": partition,
                "raw": raw,
                "count": count,
            },
        )
        return [row[0] for row in rows]

    def ids(self) -> list[int]:
        """Ids of the rows, in order."""
        return [row[0] for row in self.execute("SELECT id FROM {outbox} ORDER BY id")]

    def count(self, condition: str = "true") -> int:
        rows = self.execute(f"SELECT count(*) FROM {{outbox}} WHERE {condition}")
        return int(rows[0][0])

    def end_sessions(self) -> None:
        """End all sessions of harvesters, as an administrator would."""
        self.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name LIKE 'outbox %'"
        )

    def wait_until_empty(self, *, up_to: int | None = None) -> None:
        """Return when no row is left, or none up to an id; fail when none leaves."""
        condition = "true" if up_to is None else f"id <= {up_to}"
        wait_while_moving(
            lambda: not self.count(condition),
            what="an empty table",
            progress=lambda: self.count(condition),
            interval=0.05,
        )

    def wait_until_busy(self) -> None:
        """Return when a backlog, just written, is being worked off."""
        # Of a small one most may have left before it is counted.
        least = max(100, self.count() - 100)
        eventually(lambda: self.count() < least, interval=0, what="progress")
