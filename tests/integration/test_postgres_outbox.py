"""What only a real Postgres can show of the table's adapter."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import chain
from random import Random
from typing import Any

import psycopg
import pytest
from psycopg import sql

from django_outbox.exceptions import DatabaseBusy, DatabaseError, DatabaseUnavailable
from django_outbox.message.record import Failure, KeyToRead
from django_outbox.postgres.connection import Database, Limits
from django_outbox.postgres.marked_table import PostgresOutbox
from django_outbox.postgres.outbox_table import Table
from django_outbox.postgres.unmarked_table import UnmarkedOutbox
from tests.waiting import eventually

ME = "11111111-1111-4111-8111-111111111111"
OTHER = "22222222-2222-4222-8222-222222222222"

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)

FILL = """
INSERT INTO outbox (kafka_topic, kafka_key, kafka_value, leader_id)
SELECT 't', 'k' || n, repeat('x', 200), %s FROM generate_series(1, %s) AS n
"""

GOHARVEST = """
CREATE TABLE {} (
    id BIGSERIAL PRIMARY KEY,
    create_time TIMESTAMP WITH TIME ZONE NOT NULL,
    kafka_topic VARCHAR(249) NOT NULL,
    kafka_key VARCHAR(100) NOT NULL,
    kafka_value VARCHAR(10000),
    kafka_header_keys TEXT[] NOT NULL,
    kafka_header_values TEXT[] NOT NULL,
    leader_id UUID
)
"""

PUMP = """
INSERT INTO {} (create_time, kafka_topic, kafka_key, kafka_value,
                kafka_header_keys, kafka_header_values)
VALUES (now(), 't', 'a', 'one', '{{h}}', '{{1}}'),
       (now(), 't', 'b', NULL, '{{}}', '{{}}')
"""


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database({"conninfo": database_url}, limits=Limits(lock=0.3))
    yield database
    database.close()


@pytest.fixture
def outbox(database: Database) -> PostgresOutbox:
    return PostgresOutbox(database)


def plan_of(outbox: Table, name: str, *, position: int = 0) -> str:
    """What the planner makes of a statement, in the adapter's own session."""
    with outbox._database.session() as connection:
        statement = b"EXPLAIN " + outbox._statements(connection)[name]
        return text_of(connection.execute(statement, values_of(outbox, position)))


def plans_of(outbox: Table, name: str, *, position: int = 0) -> Iterator[str]:
    """What it makes of one that the server keeps: for these values, and for any."""
    yield plan_of(outbox, name, position=position)
    with (
        outbox._database.session() as connection,
        connection.transaction(force_rollback=True),
    ):
        connection.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        statement = outbox._statements(connection)[name]
        connection.execute(statement, values_of(outbox, position), prepare=True)
        kept = connection.execute(
            "SELECT name, cardinality(parameter_types) FROM pg_prepared_statements"
            " WHERE starts_with(statement, %s) ORDER BY prepare_time DESC",
            [f"-- outbox: {name.removesuffix('_run')}\n"],
        ).fetchone()
        assert kept is not None
        nulls = sql.SQL(", ").join([sql.NULL] * kept[1])
        explain = sql.SQL("EXPLAIN EXECUTE {} ({})")
        yield text_of(
            connection.execute(explain.format(sql.Identifier(kept[0]), nulls))
        )


def values_of(outbox: Table, position: int) -> dict[str, Any]:
    """Parameters of a page of all kinds (gaps, a key held back), and of a purge."""
    return {
        "leader_id": ME,
        "position": position,
        "limit": 1000,
        "lows": [7, 90],
        "highs": [8, 95],
        "low": 39_000,
        "ordering_keys": ["t\nk"],
        "high": 39_099,
        "run": bytes(16 * 100),
        "ids": "{7,90}",
        "message_ids": f"{{{OTHER},{ME}}}",
        **outbox._constants,
    }


def text_of(rows: Iterable[tuple[Any, ...]]) -> str:
    return "\n".join(line for (line,) in rows)


def goharvest(postgres: psycopg.Connection, name: str) -> sql.Identifier:
    """Make goharvest's own table, with a row and a tombstone."""
    table = sql.Identifier(*name.split("."))
    postgres.execute(sql.SQL(GOHARVEST).format(table))
    postgres.execute(sql.SQL(PUMP).format(table))
    return table


class TestPlan:
    """A mark, and a page, walk the primary key, neither sort nor read everything."""

    def test_right_after_a_bulk_load_without_statistics(
        self, outbox: PostgresOutbox, postgres: psycopg.Connection
    ) -> None:
        postgres.execute(FILL, [None, 50_000])

        self.check(outbox)

    def test_when_statistics_say_that_every_row_is_marked_by_this_leader(
        self, outbox: PostgresOutbox, postgres: psycopg.Connection
    ) -> None:
        postgres.execute(FILL, [ME, 2_000])
        postgres.execute("ANALYZE outbox")
        postgres.execute(FILL, [None, 50_000])

        self.check(outbox)

    def test_when_the_last_vacuum_found_the_table_empty(
        self, outbox: PostgresOutbox, postgres: psycopg.Connection
    ) -> None:
        postgres.execute(FILL, [ME, 50_000])
        postgres.execute("DELETE FROM outbox")
        postgres.execute("VACUUM ANALYZE outbox")
        postgres.execute(FILL, [None, 50_000])

        self.check(outbox)

    def test_after_an_analysis(
        self, outbox: PostgresOutbox, postgres: psycopg.Connection
    ) -> None:
        postgres.execute(FILL, [None, 50_000])
        postgres.execute("ANALYZE outbox")

        self.check(outbox)

    @staticmethod
    def check(outbox: PostgresOutbox) -> None:
        scans = [(plan_of(outbox, "mark"), 2)]
        # The third one only where the rows do not fit into the page.
        scans += [(plan, 3) for plan in plans_of(outbox, "page_after")]
        for plan, count in scans:
            assert plan.count("Index Scan using outbox_pkey") == count, plan
            assert "Sort" not in plan, plan
            assert "Seq Scan" not in plan, plan
        # What comes from three places is sorted, but a page of each at most.
        for plan in plans_of(outbox, "page", position=40_000):
            assert plan.count("Index Scan using outbox_pkey") == 3, plan
            assert "Seq Scan" not in plan, plan
        for table in (outbox, UnmarkedOutbox(outbox._database)):
            purges = ["purge", "archive"]
            if table is not outbox:
                purges += ["purge_run", "archive_run"]
            for plan in chain.from_iterable(plans_of(table, name) for name in purges):
                assert plan.count("Index Scan using outbox_pkey") == 1, plan


class TestOtherSessions:
    def test_a_mark_waits_for_anothers_and_then_takes_its_rows_over(
        self, database_url: str, postgres: psycopg.Connection, outbox: PostgresOutbox
    ) -> None:
        postgres.execute(FILL, [None, 5])
        with ThreadPoolExecutor() as threads, psycopg.connect(database_url) as other:
            other.execute("UPDATE outbox SET leader_id = %s WHERE id > 0", [OTHER])
            marking = threads.submit(PostgresOutbox.mark, outbox, ME, limit=5)
            wait_for_a_waiting_lock(postgres)
            other.commit()
            records = marking.result(timeout=10)

        assert len(records) == 5
        rows = postgres.execute("SELECT DISTINCT leader_id::text FROM outbox")
        assert rows.fetchall() == [(ME,)]

    def test_two_leaders_that_mark_at_once_neither_deadlock_nor_lose_the_order(
        self, database_url: str, postgres: psycopg.Connection
    ) -> None:
        postgres.execute(FILL, [None, 500])
        start = threading.Barrier(2)

        def mark(leader_id: str) -> list[list[int]]:
            outbox = PostgresOutbox(Database({"conninfo": database_url}))
            start.wait(timeout=10)
            pages = [outbox.mark(leader_id, limit=200) for _ in range(10)]
            outbox.close()
            return [[record.id for record in page] for page in pages]

        with ThreadPoolExecutor() as threads:
            pages = [page for found in threads.map(mark, [ME, OTHER]) for page in found]

        assert sum(map(len, pages)) >= 500
        for page in pages:
            assert page == sorted(set(page))

    def test_a_locked_table_is_busy_and_the_error_names_the_holder(
        self, database_url: str, postgres: psycopg.Connection, outbox: PostgresOutbox
    ) -> None:
        postgres.execute(FILL, [None, 1])
        with psycopg.connect(database_url, application_name="migration") as other:
            other.execute("LOCK TABLE outbox IN SHARE MODE")
            with pytest.raises(DatabaseBusy, match="lock timeout") as caught:
                outbox.mark(ME, limit=10)
            pid = other.info.backend_pid

        assert (
            "mark waits for a lock on outbox, "
            f"held by pid {pid} (migration) as ShareLock"
        ) in str(caught.value)
        assert len(outbox.mark(ME, limit=10)) == 1

    def test_a_reader_that_waits_behind_a_migration_names_the_migration(
        self, database_url: str, postgres: psycopg.Connection, outbox: PostgresOutbox
    ) -> None:
        with (
            psycopg.connect(database_url) as reader,
            psycopg.connect(database_url, application_name="migration") as migration,
            ThreadPoolExecutor() as threads,
        ):
            reader.execute("SELECT FROM outbox")
            altering = threads.submit(
                migration.execute, "ALTER TABLE outbox ADD COLUMN later integer"
            )
            wait_for_a_waiting_lock(postgres)
            with pytest.raises(DatabaseBusy, match=r"\(migration\) as AccessExclusive"):
                outbox.ping()
            reader.rollback()
            altering.result(timeout=10)
            migration.rollback()

        outbox.ping()

    def test_a_statement_that_times_out_at_a_locked_row_is_busy(
        self, database_url: str, postgres: psycopg.Connection
    ) -> None:
        postgres.execute(FILL, [None, 1])
        limits = Limits(statement=0.3, lock=30.0)
        outbox = PostgresOutbox(Database({"conninfo": database_url}, limits=limits))
        records = outbox.mark(ME, limit=10)
        with psycopg.connect(database_url) as other:
            other.execute("UPDATE outbox SET kafka_key = 'locked'")
            with pytest.raises(DatabaseBusy, match="a lock in outbox"):
                outbox.purge(ME, records)
            assert outbox.locked(records) == {records[0].id}

        assert outbox.locked(records) == set()
        outbox.close()

    def test_a_mark_passes_over_the_keys_of_locked_rows(
        self, database_url: str, postgres: psycopg.Connection
    ) -> None:
        # Each page has fewer rows than the locked keys.
        postgres.execute(
            "INSERT INTO outbox (kafka_topic, kafka_key)"
            " SELECT 't', key"
            " FROM unnest(ARRAY['a', 'b']) AS key, generate_series(1, 9)"
            " UNION ALL SELECT 't', 'c' FROM generate_series(1, 3)"
        )
        limits = Limits(statement=5.0, lock=0.2)
        outbox = PostgresOutbox(Database({"conninfo": database_url}, limits=limits))
        lock = "SELECT FROM outbox WHERE kafka_key = ANY(%s) FOR UPDATE"
        with psycopg.connect(database_url) as other:
            other.execute(lock, [["a", "b"]])
            passed = outbox.mark(ME, limit=5)
            again = outbox.mark(ME, limit=5)
        released = [outbox.mark(ME, limit=5) for _ in range(4)]
        outbox.close()

        assert [record.key for record in passed] == ["c"] * 3
        assert again == []
        ids = [record.id for page in released for record in page]
        assert ids == sorted(ids)
        assert len(ids) == 18

    def test_a_lock_leaves_the_connection_alone(
        self, database_url: str, outbox: PostgresOutbox
    ) -> None:
        outbox.ping()
        before = outbox._database._connection
        with psycopg.connect(database_url) as other:
            other.execute("LOCK TABLE outbox")
            with pytest.raises(DatabaseBusy):
                outbox.ping()
        outbox.ping()

        assert outbox._database._connection is before

    def test_a_backend_that_is_killed_during_a_call_makes_it_uncertain(
        self, database_url: str, postgres: psycopg.Connection
    ) -> None:
        postgres.execute(FILL, [None, 1])
        outbox = PostgresOutbox(
            Database({"conninfo": database_url}, application_name="victim")
        )
        with ThreadPoolExecutor() as threads, psycopg.connect(database_url) as other:
            other.execute("LOCK TABLE outbox IN SHARE MODE")
            marking = threads.submit(outbox.mark, ME, limit=10)
            wait_for_a_waiting_lock(postgres)
            terminate(postgres, "victim")
            with pytest.raises(DatabaseUnavailable):
                marking.result(timeout=10)

        assert len(outbox.mark(ME, limit=10)) == 1
        outbox.close()


class TestMistakes:
    def test_a_missing_table_says_to_migrate(self, database: Database) -> None:
        outbox = PostgresOutbox(database, table="no_such_table")

        with pytest.raises(DatabaseError, match=r"manage\.py migrate") as caught:
            outbox.mark(ME, limit=10)

        assert not caught.value.retriable
        assert '"no_such_table"' in str(caught.value)

    def test_a_table_that_is_migrated_later_is_found(
        self, database: Database, postgres: psycopg.Connection
    ) -> None:
        outbox = PostgresOutbox(database, table="later")
        with pytest.raises(DatabaseError):
            outbox.ping()

        goharvest(postgres, "later")

        assert len(outbox.mark(ME, limit=10)) == 2
        postgres.execute("DROP TABLE later")

    def test_a_missing_permission_says_what_to_grant(
        self, database_url: str, postgres: psycopg.Connection
    ) -> None:
        postgres.execute("CREATE ROLE stranger LOGIN")
        try:
            options = "-c role=stranger"
            database = Database({"conninfo": database_url, "options": options})
            with pytest.raises(DatabaseError, match="GRANT") as caught:
                PostgresOutbox(database).mark(ME, limit=10)
        finally:
            postgres.execute("DROP ROLE stranger")

        assert not caught.value.retriable

    def test_an_error_shows_nothing_of_the_row(
        self, database: Database, outbox: PostgresOutbox, postgres: psycopg.Connection
    ) -> None:
        postgres.execute(FILL, [None, 1])
        postgres.execute("UPDATE outbox SET kafka_key = 'secret'")
        (record,) = outbox.mark(ME, limit=10)
        postgres.execute(
            "ALTER TABLE outbox_parked ADD CONSTRAINT never CHECK (false) NOT VALID"
        )
        try:
            with pytest.raises(DatabaseError, match="never") as caught:
                outbox.park(ME, [Failure(record, "CODE")])
        finally:
            postgres.execute("ALTER TABLE outbox_parked DROP CONSTRAINT never")

        assert "secret" not in str(caught.value)
        assert caught.value.__suppress_context__


class TestRows:
    def test_an_infinite_time_of_creation_does_not_stop_the_mark(
        self, outbox: PostgresOutbox, postgres: psycopg.Connection
    ) -> None:
        for moment in ("infinity", "-infinity"):
            postgres.execute(
                "INSERT INTO outbox (create_time, kafka_topic, kafka_key)"
                " VALUES (%s, 't', 'k')",
                [moment],
            )

        assert [r.created_at for r in outbox.mark(ME, limit=10)] == ["0", "0"]
        assert outbox.backlog() == (2, False, 0.0)

    def test_the_time_of_creation_is_exact_to_the_microsecond(
        self, outbox: PostgresOutbox, postgres: psycopg.Connection
    ) -> None:
        postgres.execute(
            "INSERT INTO outbox (create_time, kafka_topic, kafka_key)"
            " VALUES ('2024-02-29 23:59:59.999999+00', 't', 'k')"
        )

        assert outbox.mark(ME, limit=10)[0].created_at == "1709251199999999"

    def test_all_years_that_have_four_digits_are_exact(
        self, outbox: PostgresOutbox, postgres: psycopg.Connection
    ) -> None:
        first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
        moments = [first, last, EPOCH, EPOCH - MICROSECOND, EPOCH + MICROSECOND]
        for year in (1900, 2100):
            turn = datetime(year, 1, 1, tzinfo=UTC)
            moments += [turn - MICROSECOND, turn, turn + MICROSECOND]
        seeded = Random(1)
        for start, end in ((first, last), (moments[5], moments[-1])):
            span = (end - start) // MICROSECOND
            moments += [
                start + MICROSECOND * seeded.randrange(span) for _ in range(2000)
            ]
        postgres.execute(
            "INSERT INTO outbox (create_time, kafka_topic, kafka_key)"
            " SELECT moment, 't', 'k' FROM unnest(%s::timestamptz[]) AS moment",
            [moments],
        )

        wanted = [str((moment - EPOCH) // MICROSECOND) for moment in moments]
        assert [r.created_at for r in outbox.mark(ME, limit=5000)] == wanted

    def test_attempts_stop_at_the_largest_number_and_errors_are_cut(
        self, outbox: PostgresOutbox, postgres: psycopg.Connection
    ) -> None:
        postgres.execute(FILL, [None, 1])
        postgres.execute("UPDATE outbox SET attempts = 32767")
        (record,) = outbox.mark(ME, limit=10)

        outbox.fail(ME, [Failure(record, "a\0b" + "x" * 1000)])

        row = postgres.execute("SELECT attempts, last_error FROM outbox").fetchone()
        assert row == (32767, "ab" + "x" * 498)
        assert outbox.park(ME, [Failure(record, "CODE")]) == 1

    def test_negative_attempts_count_as_none(
        self, outbox: PostgresOutbox, postgres: psycopg.Connection
    ) -> None:
        postgres.execute(FILL, [None, 1])
        postgres.execute("UPDATE outbox SET attempts = -32768")
        (record,) = outbox.mark(ME, limit=10)

        outbox.fail(ME, [Failure(record, "no")])

        row = postgres.execute("SELECT attempts FROM outbox").fetchone()
        assert row == (1,)

    def test_parked_and_archived_rows_keep_all_that_was_written(
        self, database: Database, postgres: psycopg.Connection
    ) -> None:
        outbox = PostgresOutbox(database, has_archive=True)
        wanted = (
            "id, create_time, kafka_topic, kafka_key, kafka_value, kafka_value_bytes,"
            " kafka_header_keys, kafka_header_values, message_id, kafka_partition,"
            " cluster_id"
        )
        for _ in range(2):
            postgres.execute(
                "INSERT INTO outbox (kafka_topic, kafka_key, kafka_value_bytes,"
                " kafka_header_keys, kafka_header_values, kafka_partition, cluster_id)"
                " VALUES ('t', 'k', '\\x00ff', '{a,b}', '{1,NULL}', 4, 2)"
            )
        written = postgres.execute(f"SELECT {wanted} FROM outbox ORDER BY id")
        parked, archived = written.fetchall()
        first, second = outbox.mark(ME, limit=10)

        assert outbox.park(ME, [Failure(first, "CODE")]) == 1
        assert outbox.purge(ME, [second]) == 1

        found = postgres.execute(f"SELECT {wanted} FROM outbox_parked").fetchall()
        assert found == [parked]
        found = postgres.execute(f"SELECT {wanted} FROM outbox_archive").fetchall()
        assert found == [archived]

    def test_the_backlog_stops_counting_at_its_cap(
        self, outbox: PostgresOutbox, postgres: psycopg.Connection
    ) -> None:
        postgres.execute(FILL, [None, 100_001])

        backlog = outbox.backlog()

        assert (backlog.records, backlog.is_capped) == (100_000, True)

    def test_topics_stop_counting_at_the_same_cap(
        self, outbox: PostgresOutbox, postgres: psycopg.Connection
    ) -> None:
        postgres.execute(FILL, [None, 100_001])
        assert outbox.topics(limit=20) == ((("t", 100_000),), 0)

    def test_an_open_writer_ages_from_the_begin_of_its_transaction(
        self, outbox: PostgresOutbox, postgres: psycopg.Connection, database_url: str
    ) -> None:
        assert outbox.writer_ages() == {}
        with (
            psycopg.connect(database_url) as writer,
            psycopg.connect(database_url) as r,
        ):
            r.execute("SELECT FROM outbox")
            writer.execute("SELECT pg_sleep(0.2)")
            assert outbox.writer_ages() == {}
            writer.execute(FILL, [None, 1])
            (age,) = outbox.writer_ages().values()
            assert age is not None
            assert 0.2 <= age < 60
            writer.rollback()
        assert outbox.writer_ages() == {}

    def test_a_prepared_writer_ages_from_its_preparation(
        self, outbox: PostgresOutbox, postgres: psycopg.Connection, database_url: str
    ) -> None:
        with psycopg.connect(database_url) as writer:
            writer.execute(FILL, [None, 1])
            writer.execute("PREPARE TRANSACTION 'writer'")
        try:
            (age,) = outbox.writer_ages().values()
            assert age is not None
            assert 0 <= age < 60
        finally:
            postgres.execute("ROLLBACK PREPARED 'writer'")

    def test_deleted_rows_are_dead_until_a_vacuum(
        self, outbox: PostgresOutbox, postgres: psycopg.Connection
    ) -> None:
        postgres.execute(FILL, [None, 50])
        postgres.execute("DELETE FROM outbox")
        postgres.execute("SELECT pg_stat_force_next_flush()")
        eventually(lambda: outbox.dead_tuples() >= 50)
        postgres.execute("VACUUM outbox")
        postgres.execute("SELECT pg_stat_force_next_flush()")
        eventually(lambda: outbox.dead_tuples() == 0)

    def test_reset_reads_no_further_than_the_marks_reach(
        self, outbox: PostgresOutbox, postgres: psycopg.Connection
    ) -> None:
        postgres.execute(FILL, [None, 3])
        records = outbox.mark(ME, limit=2)
        beyond = "UPDATE outbox SET leader_id = %s WHERE leader_id IS NULL"
        postgres.execute(beyond, [ME])

        outbox.reset(ME, [KeyToRead(r.ordering_key, 1) for r in records])
        assert free_rows(postgres) == 2
        outbox.reset(ME, [KeyToRead(("t", "k3"), 1)])
        assert free_rows(postgres) == 2

    def test_reset_has_no_bound_after_a_mark_of_unknown_outcome(
        self, database_url: str, postgres: psycopg.Connection
    ) -> None:
        postgres.execute(FILL, [None, 3])
        outbox = PostgresOutbox(
            Database({"conninfo": database_url}, application_name="victim")
        )
        with ThreadPoolExecutor() as threads, psycopg.connect(database_url) as other:
            other.execute("LOCK TABLE outbox IN SHARE MODE")
            marking = threads.submit(outbox.mark, ME, limit=1)
            wait_for_a_waiting_lock(postgres)
            terminate(postgres, "victim")
            with pytest.raises(DatabaseUnavailable):
                marking.result(timeout=10)
        # As if that mark had been carried out.
        postgres.execute("UPDATE outbox SET leader_id = %s", [ME])

        assert outbox.mark(ME, limit=1) == []
        outbox.reset(ME, [KeyToRead(("t", "k3"), 1)])
        outbox.close()
        assert free_rows(postgres) == 1

    def test_a_lock_does_not_widen_what_a_reset_reads(
        self, database_url: str, outbox: PostgresOutbox, postgres: psycopg.Connection
    ) -> None:
        postgres.execute(FILL, [None, 3])
        outbox.mark(ME, limit=1)
        with psycopg.connect(database_url) as other:
            other.execute("LOCK TABLE outbox IN SHARE MODE")
            with pytest.raises(DatabaseBusy):
                outbox.mark(ME, limit=1)
        beyond = "UPDATE outbox SET leader_id = %s WHERE leader_id IS NULL"
        postgres.execute(beyond, [ME])

        outbox.reset(ME, [KeyToRead(("t", "k3"), 0)])
        assert free_rows(postgres) == 0


def terminate(postgres: psycopg.Connection, application_name: str) -> None:
    postgres.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = %s",
        [application_name],
    )


def free_rows(postgres: psycopg.Connection) -> int:
    """Count rows without a mark."""
    query = "SELECT count(*) FROM outbox WHERE leader_id IS NULL"
    row = postgres.execute(query).fetchone()
    assert row is not None
    return int(row[0])


class TestOtherTables:
    """Tables that `migrate` did not make."""

    def test_goharvests_own_table_is_harvested(
        self, database: Database, postgres: psycopg.Connection
    ) -> None:
        table = goharvest(postgres, "goharvest_outbox")
        outbox = PostgresOutbox(database, table="goharvest_outbox", source="shop")

        one, two = outbox.mark(ME, limit=10)

        assert (one.key, one.value, one.header_keys) == ("a", "one", ["h"])
        assert (two.key, two.is_tombstone, two.header_keys) == ("b", True, [])
        assert (one.partition, one.cluster_id, one.attempts) == (None, 0, 0)
        assert outbox.fail(ME, [Failure(one, "CODE"), Failure(two, "CODE")]) == 2
        assert outbox.fail(OTHER, [Failure(one, "CODE")]) == 0
        outbox.reset(ME, [KeyToRead(one.ordering_key, 1)])
        assert outbox.purge(ME, [one, two]) == 1
        assert outbox.backlog().records == 1
        assert outbox.topics(limit=5) == ((("t", 1),), 0)
        with pytest.raises(DatabaseError, match="goharvest_outbox_parked"):
            outbox.park(ME, [Failure(one, "CODE")])
        postgres.execute(sql.SQL("DROP TABLE {}").format(table))

    def test_a_row_without_a_message_id_gets_one_that_stays_and_is_its_own(
        self, database: Database, postgres: psycopg.Connection
    ) -> None:
        table = goharvest(postgres, "goharvest_outbox")
        shop = PostgresOutbox(database, table="goharvest_outbox", source="shop")
        bank = PostgresOutbox(database, table="goharvest_outbox", source="bank")

        first = [record.message_id for record in shop.mark(ME, limit=10)]
        again = [record.message_id for record in shop.mark(OTHER, limit=10)]
        other = [record.message_id for record in bank.mark(ME, limit=10)]

        assert first == again
        assert len({*first, *other}) == 4
        postgres.execute(sql.SQL("DROP TABLE {}").format(table))

    @pytest.mark.parametrize(
        "name", ['x"; drop table outbox; --', "a%sb", "{}", "Größe", "o'x"]
    )
    def test_a_name_of_odd_characters_is_only_a_name(
        self, database: Database, postgres: psycopg.Connection, name: str
    ) -> None:
        table = goharvest(postgres, name)
        outbox = PostgresOutbox(database, table=name)

        outbox.ping()
        records = outbox.mark(ME, limit=10)
        outbox.reset(ME, [KeyToRead(records[0].ordering_key, 1)])
        assert outbox.purge(ME, records) == 1
        assert outbox.backlog().records == 1
        assert outbox.topics(limit=5) == ((("t", 1),), 0)
        assert outbox.writer_ages() == {}
        outbox.dead_tuples()
        postgres.execute(sql.SQL("DROP TABLE {}").format(table))

    def test_a_table_may_lie_in_another_schema(
        self, database: Database, postgres: psycopg.Connection
    ) -> None:
        postgres.execute("CREATE SCHEMA sales")
        goharvest(postgres, "sales.messages")

        assert len(PostgresOutbox(database, table="sales.messages").mark(ME, limit=9))
        postgres.execute("DROP SCHEMA sales CASCADE")


def test_a_statement_shows_its_name_to_the_operator(
    database_url: str, postgres: psycopg.Connection, outbox: PostgresOutbox
) -> None:
    postgres.execute(FILL, [None, 1])
    with ThreadPoolExecutor() as threads, psycopg.connect(database_url) as other:
        other.execute("LOCK TABLE outbox IN SHARE MODE")
        marking = threads.submit(outbox.mark, ME, limit=10)
        query = wait_for_a_waiting_lock(postgres)
        other.rollback()
        marking.result(timeout=10)

    assert query.startswith("-- outbox: mark\n")


def wait_for_a_waiting_lock(postgres: psycopg.Connection) -> str:
    """Return the statement that waits for a lock."""
    waiting = (
        "SELECT query FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        " AND datname = current_database()"
    )
    row = eventually(lambda: postgres.execute(waiting).fetchone(), interval=0.01)
    return str(row[0])
