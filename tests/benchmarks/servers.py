"""
The servers of one run: the devstack, with a PostgreSQL that Debezium can read.

Addresses in the environment win, as for the tests: then it depends on that
server's `wal_level` whether Debezium takes part.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from django_outbox.devstack import Stack, devstack
from django_outbox.devstack.embedded_postgres import EmbeddedPostgres

from ..processes import manage


@contextmanager
def servers() -> Iterator[Stack]:
    """Provide both servers, with the project's tables, and name them to children."""
    own = (
        None
        if os.environ.get("DATABASE_URL")
        else EmbeddedPostgres(options={"wal_level": "logical", "max_wal_size": "4GB"})
    )
    try:
        if own is not None:
            own.start()
            os.environ["DATABASE_URL"] = own.address
        with devstack(progress=print) as stack:
            os.environ.update(stack.environment)
            manage("migrate", "--verbosity", "0")
            yield stack
    finally:
        if own is not None:
            del os.environ["DATABASE_URL"]
            own.close()


def connect() -> psycopg.Connection:
    """Connect to the database, in autocommit mode."""
    return psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)


def is_logical() -> bool:
    """Whether the server's log can be decoded."""
    with connect() as connection:
        row = connection.execute("SHOW wal_level").fetchone()
    return row == ("logical",)
