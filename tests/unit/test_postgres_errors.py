"""What becomes of errors that PostgreSQL's client finds by itself."""

from __future__ import annotations

import psycopg
import pytest

from django_outbox.exceptions import DatabaseUnavailable, OutOfResources
from django_outbox.postgres.errors import translated


@pytest.mark.parametrize(
    "text",
    [
        "cannot allocate memory for input buffer",
        "out of memory for query result\n",
        "connection failed: could not create socket: Too many open files",
    ],
)
def test_a_process_without_memory_or_files_ends(text: str) -> None:
    with pytest.raises(OutOfResources, match=text.strip()):
        translated(psycopg.OperationalError(text))


def test_a_server_without_files_is_waited_for() -> None:
    text = (
        'connection to server at "db" failed: FATAL:  could not open file '
        '"global/pg_filenode.map": Too many open files in system'
    )
    assert isinstance(translated(psycopg.OperationalError(text)), DatabaseUnavailable)


def test_a_server_without_memory_is_waited_for() -> None:
    text = 'connection to server at "db" failed: FATAL: out of memory'
    assert isinstance(translated(psycopg.OperationalError(text)), DatabaseUnavailable)
    error = psycopg.errors.OutOfMemory("out of memory")
    assert isinstance(translated(error), DatabaseUnavailable)
