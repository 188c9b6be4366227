"""
One side for each package: its own table, its own relay command as a process.

The rate counts from the relay's first connection to the database to the last
row that is deleted, or marked as sent; so neither Python's start nor what a
command sets up at the broker is in it. The process is ended then.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final
from urllib.parse import urlsplit

import psycopg

from django_outbox.clock import boottime_ns

from ...acceptance.tables import project_environment
from ...processes import Process
from ...waiting import eventually
from ..servers import connect
from ..sides import PATIENCE, Drained, Running
from ..workload import Workload

FOLDER: Final = Path(__file__).parent
"""Where Python finds the project."""

WAITING: Final = {
    "django-outbox-pattern": ("published", "status = 1"),
    "django-jaiminho": ("jaiminho_event", "true"),
    "django-celery-outbox": ("celery_outbox", "true"),
}
"""The table of each package, and which of its rows have still to be sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageSide:
    """The relay of one package."""

    name: str
    can_be_two: ClassVar = True
    python: Path
    """Of the environment that has the packages."""
    url: str
    """Of the database that has their tables."""

    def drain(self, workload: Workload, topic: str) -> Drained:
        self.fill(workload, topic)
        table, waiting = WAITING[self.name]
        query = f"SELECT FROM {table} WHERE {waiting} LIMIT 1"
        opened = psycopg.connect(self.url, autocommit=True)
        with opened as connection, self.start() as relay:
            begun = relay.wait_for("begun")

            def is_drained() -> bool:
                assert relay.is_running, relay.report()
                return not connection.execute(query).rowcount

            # Each question takes time from what is measured.
            eventually(is_drained, timeout=PATIENCE, interval=0.02)
            seconds = (boottime_ns() - begun["boottime_ns"]) / 1e9
            cpu = relay.cpu_seconds() - begun["cpu_seconds"]
        return Drained(seconds=seconds, cpu_seconds=cpu)

    @contextmanager
    def filled(self, workload: Workload, topic: str) -> Iterator[None]:
        """Have a backlog in the table while the block runs."""
        self.fill(workload, topic)
        yield

    def fill(self, workload: Workload, topic: str) -> None:
        """Put a backlog into an empty table, settled as after some time."""
        table, _ = WAITING[self.name]
        numbers = (workload.records, workload.keys, workload.size)
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"TRUNCATE {table}")
            self._run("-m", "project", "fill", self.name, topic, *map(str, numbers))
            connection.execute(f"VACUUM ANALYZE {table}")
            connection.execute("CHECKPOINT")

    def start(self) -> Process:
        """Start one process more of its relay; `end()` it."""
        command = [str(self.python), "-m", "project", "relay", self.name]
        return Process(self.name, command, self._environment())

    def left(self) -> int:
        """Rows that have still to be sent."""
        table, waiting = WAITING[self.name]
        with psycopg.connect(self.url, autocommit=True) as connection:
            query = f"SELECT count(*) FROM {table} WHERE {waiting}"
            return int(connection.execute(query).fetchall()[0][0])

    @contextmanager
    def running(self, topic: str) -> Iterator[Running]:
        raise NotImplementedError("it drains, and ends")
        yield

    def migrate(self) -> None:
        """Make the tables of all packages."""
        self._run("-m", "django", "migrate", "--verbosity", "0")

    def _run(self, *arguments: str) -> None:
        command = [str(self.python), *arguments]
        subprocess.run(command, env=self._environment(), check=True)

    def _environment(self) -> dict[str, str]:
        return {
            **project_environment(),
            "DATABASE_URL": self.url,
            "DJANGO_SETTINGS_MODULE": "project.settings",
            "PYTHONPATH": str(FOLDER),
        }


def all_sides(python: Path, url: str) -> list[PackageSide]:
    """Return the packages that take part, with their tables made."""
    made = [PackageSide(name=name, python=python, url=url) for name in WAITING]
    made[0].migrate()
    return made


@contextmanager
def database() -> Iterator[str]:
    """Provide a database for the packages' tables; its address."""
    name = f"bench_packages_{os.getpid()}"
    with connect() as connection:
        connection.execute(f"CREATE DATABASE {name}")
        try:
            yield (
                urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{name}").geturl()
            )
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
