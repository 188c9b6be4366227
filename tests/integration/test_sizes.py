"""How large a row may be, and what the reader does with rows that are larger."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from django_outbox.message.record import KeyToRead, Sweep, size_of
from django_outbox.postgres.connection import Database
from django_outbox.postgres.marked_table import PostgresOutbox
from django_outbox.postgres.unmarked_table import UnmarkedOutbox
from django_outbox.settings.message_sizes import MAX_HEADERS, MAX_HEADERS_BYTES
from django_outbox.settings.rules import (
    LARGEST_HEADERS,
    LARGEST_VALUE,
)

from .test_postgres_outbox import GOHARVEST

ME = "11111111-1111-4111-8111-111111111111"
LARGE = 2_000_000
"""Bytes of a header."""
ROWS = 40
PAGE_BYTES = 3 * LARGE

INTO = {
    "outbox": "INSERT INTO outbox (kafka_topic, kafka_key, {}) VALUES ('t', 'k', {})",
    "outbox_staged": "INSERT INTO outbox_staged (not_before, kafka_topic, kafka_key,"
    " {}) VALUES (now(), 't', 'k', {})",
}
HEADERS = "kafka_header_keys, kafka_header_values"


@pytest.mark.parametrize("table", INTO)
@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("kafka_value", f"repeat('v', {LARGEST_VALUE + 1})"),
        ("kafka_value", f"repeat('ü', {LARGEST_VALUE // 2 + 1})"),
        ("kafka_value_bytes", f"repeat('v', {LARGEST_VALUE + 1})::bytea"),
        (
            HEADERS,
            "array_fill(''::text, ARRAY[9000]), array_fill(''::text, ARRAY[9000])",
        ),
        (HEADERS, f"ARRAY['a'], ARRAY[repeat('b', {LARGEST_HEADERS})]"),
        (HEADERS, f"ARRAY[repeat('ü', {LARGEST_HEADERS // 2})], ARRAY['b']"),
    ],
)
def test_a_row_that_is_too_large_is_refused(
    postgres: psycopg.Connection, table: str, column: str, value: str
) -> None:
    statement = INTO[table].format(column, value)
    with pytest.raises(psycopg.errors.CheckViolation, match="_size"):
        postgres.execute(statement)


def test_a_key_that_is_too_long_is_refused(postgres: psycopg.Connection) -> None:
    with pytest.raises(psycopg.errors.StringDataRightTruncation):
        postgres.execute(
            "INSERT INTO outbox (kafka_topic, kafka_key) VALUES ('t', repeat('k', 256))"
        )


@pytest.mark.parametrize("table", INTO)
@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("kafka_value", f"repeat('v', {LARGEST_VALUE})"),
        ("kafka_value_bytes", f"repeat('v', {LARGEST_VALUE})::bytea"),
        (
            HEADERS,
            f"array_fill('a'::text, ARRAY[{MAX_HEADERS}]),"
            f" array_fill('b'::text, ARRAY[{MAX_HEADERS}])",
        ),
        (HEADERS, f"ARRAY['a'], ARRAY[repeat('b', {MAX_HEADERS_BYTES - 1})]"),
        (HEADERS, "ARRAY['a', 'b'], ARRAY[NULL, '']"),
    ],
)
def test_a_row_of_the_largest_size_is_taken(
    postgres: psycopg.Connection, table: str, column: str, value: str
) -> None:
    postgres.execute(INTO[table].format(column, value))


def test_headers_that_are_compressed_already_are_measured_in_full(
    postgres: psycopg.Connection,
) -> None:
    """A row that is copied from another table keeps its compression."""
    postgres.execute(
        "CREATE TEMP TABLE planted AS SELECT ARRAY['a'] AS names,"
        " ARRAY[repeat('b', 1000000)] AS texts"
    )
    with pytest.raises(psycopg.IntegrityError, match="outbox_headers_size"):
        postgres.execute(
            f"INSERT INTO outbox (kafka_topic, kafka_key, {HEADERS})"
            " SELECT 't', 'k', names, texts FROM planted"
        )


class TestAnyTable:
    """goharvest's own table checks nothing."""

    @pytest.fixture
    def bare(self, postgres: psycopg.Connection) -> Iterator[str]:
        name = "bare_outbox"
        postgres.execute(GOHARVEST.format(name))
        yield name
        postgres.execute(f"DROP TABLE {name}")

    @pytest.fixture
    def database(self, database_url: str) -> Iterator[Database]:
        database = Database({"conninfo": database_url})
        yield database
        database.close()

    @pytest.fixture(params=["compressed", "stored", "in the name", "beside a null"])
    def large(
        self, request: pytest.FixtureRequest, postgres: psycopg.Connection, bare: str
    ) -> str:
        """A table of rows with large headers and values of a byte."""
        if request.param == "stored":
            postgres.execute(
                f"ALTER TABLE {bare} ALTER kafka_header_values SET STORAGE EXTERNAL"
            )
        if request.param == "beside a null":
            postgres.execute(
                f"ALTER TABLE {bare} ALTER kafka_header_keys DROP NOT NULL"
            )
        names, texts = "ARRAY['a']", f"ARRAY[repeat('b', {LARGE})]"
        if request.param == "in the name":
            names, texts = texts, names
        if request.param == "beside a null":
            names = "NULL"
        postgres.execute(
            f"INSERT INTO {bare} (create_time, kafka_topic, kafka_key, kafka_value,"
            f" {HEADERS}) SELECT now(), 't', n::text, 'v', {names}, {texts}"
            f" FROM generate_series(1, {ROWS}) AS n"
        )
        return bare

    def test_no_read_holds_more_headers_than_a_page_may(
        self, database: Database, large: str
    ) -> None:
        table = UnmarkedOutbox(database, table=large, page_bytes=PAGE_BYTES)
        ordering_keys = [KeyToRead(("t", str(n)), 1) for n in range(1, ROWS + 1)]
        reads = {
            "page_after": table.page(0, [], limit=1000),
            "page": table.page(0, [(1, ROWS)], limit=1000),
            "keys": table.page(ROWS, [], ordering_keys, limit=1000),
            "sweep": table.sweep(ROWS, Sweep((), ()), limit=1000),
        }

        for name, records in reads.items():
            assert 1 < len(records) <= 4, name
            assert size_of(records) <= PAGE_BYTES + LARGE + 1000, name

    def test_no_mark_holds_more_headers_than_a_page_may(
        self, database: Database, large: str
    ) -> None:
        table = PostgresOutbox(database, table=large, page_bytes=PAGE_BYTES)

        records = table.mark(ME, limit=1000)

        assert 1 < len(records) <= 4
        assert size_of(records) <= PAGE_BYTES + LARGE + 1000

    def test_a_time_of_creation_that_no_number_holds_stops_no_page(
        self, postgres: psycopg.Connection, database: Database, bare: str
    ) -> None:
        for moment in ("294276-12-31 23:59+00", "infinity", "-infinity", "now"):
            postgres.execute(
                f"INSERT INTO {bare} (create_time, kafka_topic, kafka_key, {HEADERS})"
                " VALUES (%s, 't', 'k', '{}', '{}')",
                [moment],
            )
        table = UnmarkedOutbox(database, table=bare)

        *first, last = table.page(0, [], limit=10)
        assert [record.created_at for record in first] == ["0", "0", "0"]
        assert int(last.created_at) > 0
        assert table.backlog().records == 4
