"""Roles of PostgreSQL with exactly the rights that they need."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import psycopg
import pytest

from django_outbox.operations.grants import grants
from django_outbox.postgres.connection import Database


@pytest.fixture
def role(postgres: psycopg.Connection) -> Iterator[str]:
    """A role without any privileges."""
    name = f"outbox_test_{uuid.uuid4().hex}"
    postgres.execute(f"CREATE ROLE {name}")  # type: ignore[call-overload]
    yield name
    postgres.execute(f"DROP OWNED BY {name}")  # type: ignore[call-overload]
    postgres.execute(f"DROP ROLE {name}")  # type: ignore[call-overload]


@pytest.fixture
def database(
    postgres: psycopg.Connection, database_url: str, role: str
) -> Iterator[Database]:
    """Connections that act as the harvester's role: nothing here needs more."""
    for statement in grants("outbox", harvester=role):
        postgres.execute(statement)
    database = Database({"conninfo": database_url, "options": f"-c role={role}"})
    yield database
    database.close()
