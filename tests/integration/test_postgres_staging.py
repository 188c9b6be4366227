"""How the leader empties the staged tables, on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now

from django_outbox import (
    SeriesClosed,
    discard_series,
    open_series,
    release_series,
    stash,
    stash_delayed,
)
from django_outbox.exceptions import DatabaseError
from django_outbox.message.record import ExpiredSeries, StagingDeadlines
from django_outbox.models import OutboxRecord, ParkedRecord, Series, StagedRecord
from django_outbox.postgres.connection import Database
from django_outbox.postgres.staged_tables import PostgresStaging

from .transactions import begun

S = "order-17"
DAY = 86_400.0
PAST = timedelta(seconds=-5)
IMPOSSIBLE = (
    "-infinity",
    "infinity",
    "4713-01-01 00:00+00 BC",
    "294276-12-31 23:59+00",
)
"""Dates that PostgreSQL takes, and with which it cannot always reckon."""


@pytest.fixture
def unchecked(postgres: psycopg.Connection) -> Iterator[psycopg.Connection]:
    """A connection to tables that take any date."""
    checks = {
        "outbox_staged": "outbox_staged_date_in_range",
        "outbox_series": "outbox_series_dates_in_range",
    }
    former = {}
    for table, name in checks.items():
        row = postgres.execute(
            "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = %s",
            [name],
        ).fetchone()
        assert row is not None
        former[name] = row[0]
        postgres.execute(f"ALTER TABLE {table} DROP CONSTRAINT {name}")
    yield postgres
    for table, name in checks.items():
        postgres.execute(f"DELETE FROM {table}")
        postgres.execute(f"ALTER TABLE {table} ADD CONSTRAINT {name} {former[name]}")


@pytest.fixture
def staging(database: Database) -> PostgresStaging:
    return PostgresStaging(database, table="outbox", retention=3600.0)


def write(*keys: str, not_before: timedelta) -> None:
    """Stage delayed messages in a transaction of their own."""
    with transaction.atomic():
        for key in keys:
            stash_delayed(
                "t", key=key, value=key, headers={"h": key}, not_before=not_before
            )


def add(*keys: str, series: str = S, **options: Any) -> None:
    """Add messages to a series in a transaction of their own."""
    with transaction.atomic():
        for key in keys:
            with open_series(series, **options) as opened:
                opened.stash("t", key=key, value=key, headers={"h": key})


def overdue(*keys: str, action: str = "park", name: str = S) -> None:
    """Make a series whose time is up."""
    add(*keys, series=name, timeout=60)
    Series.objects.filter(name=name).update(
        expires_at=Now() - timedelta(seconds=1), on_timeout=action
    )


def sent() -> list[str]:
    rows = OutboxRecord.objects.order_by("id")
    return list(rows.values_list("kafka_key", flat=True))


def staged() -> list[str]:
    rows = StagedRecord.objects.order_by("staged_id")
    return list(rows.values_list("kafka_key", flat=True))


def agenda(staging: PostgresStaging) -> StagingDeadlines:
    found = staging.agenda()
    assert found is not None
    return found


class TestAgenda:
    def test_nothing_is_due_in_empty_tables(self, staging: PostgresStaging) -> None:
        assert agenda(staging) == StagingDeadlines(DAY, DAY, DAY, is_expiring=False)

    def test_it_tells_what_comes_next(self, staging: PostgresStaging) -> None:
        write("later", not_before=timedelta(minutes=10))
        write("soon", not_before=timedelta(minutes=5))
        add("a", series=S, timeout=600)
        add("b", series="no time-out")
        add("c", series="closed", expected=1, timeout=1)
        found = agenda(staging)
        assert found.due == pytest.approx(300, abs=30)
        assert found.overdue == pytest.approx(600, abs=30)
        assert found.purgeable_at == pytest.approx(3600, abs=30)
        assert not found.is_expiring

    def test_what_is_past_is_due_now(self, staging: PostgresStaging) -> None:
        write("a", not_before=PAST)
        overdue("b")
        assert agenda(staging)[:2] == (0.0, 0.0)

    @pytest.mark.parametrize("moment", IMPOSSIBLE)
    def test_a_date_that_cannot_come_is_refused(
        self, postgres: psycopg.Connection, moment: str
    ) -> None:
        for statement in (
            "INSERT INTO outbox_staged (kafka_topic, kafka_key, not_before)"
            " VALUES ('t', 'k', %s)",
            "INSERT INTO outbox_series (name, expires_at) VALUES ('s', %s)",
            "INSERT INTO outbox_series (name, closed_at) VALUES ('s', %s)",
        ):
            with pytest.raises(psycopg.errors.CheckViolation, match="in_range"):
                postgres.execute(statement, [moment])

    @pytest.mark.parametrize("moment", IMPOSSIBLE)
    def test_a_date_that_cannot_come_stops_no_other(
        self, staging: PostgresStaging, unchecked: psycopg.Connection, moment: str
    ) -> None:
        """Tables may come from a dump, or without their checks."""
        unchecked.execute(
            "INSERT INTO outbox_staged (kafka_topic, kafka_key, not_before)"
            " VALUES ('t', 'k', %s)",
            [moment],
        )
        unchecked.execute(
            "INSERT INTO outbox_series (name, expires_at, closed_at)"
            " VALUES ('s', %(moment)s, NULL), ('t', NULL, %(moment)s)",
            {"moment": moment},
        )
        write("due", not_before=PAST)

        found = agenda(staging)
        assert (found.due, found.is_expiring) == (0.0, False)
        assert found.overdue in {0.0, DAY}
        assert found.purgeable_at in {0.0, DAY}
        assert staging.release(limit=10) > 0
        assert "due" in sent()

    @pytest.mark.parametrize("table", ["elsewhere", "public.elsewhere"])
    def test_an_outbox_without_the_tables_has_none(
        self, database: Database, table: str
    ) -> None:
        assert PostgresStaging(database, table=table, retention=1.0).agenda() is None

    def test_every_question_is_answered_by_an_index(
        self, staging: PostgresStaging, postgres: psycopg.Connection
    ) -> None:
        write("a", not_before=timedelta(hours=1))
        with postgres.transaction():
            postgres.execute("SET LOCAL enable_seqscan = off")
            statement = staging._statements["agenda"].decode()
            plan = postgres.execute(f"EXPLAIN {statement}", {"retention": 1}).fetchall()
        text = "\n".join(line for (line,) in plan)
        assert "Seq Scan" not in text
        for index in ("staged_due", "series_due", "series_closed"):
            assert f"outbox_{index}" in text, text


class TestDates:
    def test_what_is_due_goes_in_the_order_of_its_dates(
        self, staging: PostgresStaging
    ) -> None:
        write("second", "third", not_before=PAST)
        write("first", not_before=2 * PAST)
        write("later", not_before=timedelta(hours=1))
        ids = dict(StagedRecord.objects.values_list("kafka_key", "message_id"))
        assert staging.release(limit=10) == 3
        assert (sent(), staged()) == (["first", "second", "third"], ["later"])
        row = OutboxRecord.objects.get(kafka_key="first")
        assert (row.message_id, row.kafka_value) == (ids["first"], "first")
        assert (row.kafka_header_keys, row.kafka_header_values) == (["h"], ["first"])

    def test_one_without_a_date_overtakes_it(self, staging: PostgresStaging) -> None:
        write("dated", not_before=PAST)
        with transaction.atomic():
            stash("t", key="plain", value=None)
        staging.release(limit=10)
        assert sent() == ["plain", "dated"]

    def test_it_is_as_young_as_its_move(self, staging: PostgresStaging) -> None:
        """The age of the oldest row must not tell of a delay that was wanted."""
        write("a", not_before=PAST)
        StagedRecord.objects.update(create_time=F("create_time") - timedelta(days=9))
        staging.release(limit=10)
        assert OutboxRecord.objects.all().backlog().oldest_age < 60

    def test_no_more_than_asked_is_moved(self, staging: PostgresStaging) -> None:
        write("a", "b", "c", not_before=PAST)
        assert [staging.release(limit=2) for _ in range(3)] == [2, 1, 0]

    def test_two_leaders_at_once_move_it_once(
        self, staging: PostgresStaging, postgres: psycopg.Connection
    ) -> None:
        write("a", "b", not_before=PAST)
        with postgres.transaction():
            postgres.execute(
                "SELECT FROM outbox_staged WHERE kafka_key = 'a' FOR UPDATE"
            )
            assert staging.release(limit=10) == 1
        assert staging.release(limit=10) == 1
        assert sorted(sent()) == ["a", "b"]


class TestSeries:
    def test_a_series_whose_time_is_up_is_parked_and_can_be_put_back(
        self, staging: PostgresStaging
    ) -> None:
        with transaction.atomic():
            stash("t", key="at once", value=None)
        overdue("b", "a")
        ids = dict(StagedRecord.objects.values_list("kafka_key", "message_id"))
        assert staging.expire(limit=10) == 1
        assert agenda(staging).is_expiring
        assert staging.clear(limit=10) == ExpiredSeries(S, 2, "park")
        assert staging.clear(limit=10) is None
        assert not agenda(staging).is_expiring
        assert (sent(), staged()) == (["at once"], [])
        series = Series.objects.get()
        assert series.state == "expired"
        assert series.closed_at is not None
        (b, a) = ParkedRecord.objects.order_by("id")
        assert (b.kafka_key, a.kafka_key) == ("b", "a")
        assert (b.last_error, b.attempts) == (f"SERIES_EXPIRED: {S}", 0)
        assert ParkedRecord.objects.all().release() == 2
        assert sent() == ["at once", "b", "a"]
        assert OutboxRecord.objects.get(kafka_key="a").message_id == ids["a"]
        # The ids were drawn from the outbox: nobody gets them again.
        with transaction.atomic():
            stash("t", key="next", value=None)
        assert sent() == ["at once", "b", "a", "next"]

    def test_or_it_is_discarded(self, staging: PostgresStaging) -> None:
        overdue("a", "b", action="discard")
        staging.expire(limit=10)
        assert staging.clear(limit=10) == ExpiredSeries(S, 2, "discard")
        assert (sent(), staged()) == ([], [])
        assert not ParkedRecord.objects.exists()

    def test_a_long_one_goes_in_pieces(self, staging: PostgresStaging) -> None:
        overdue(*"abcd")
        staging.expire(limit=10)
        found = [staging.clear(limit=2) for _ in range(3)]
        assert found == [None, None, ExpiredSeries(S, 4, "park")]
        parked = ParkedRecord.objects.order_by("id").values_list("kafka_key", flat=True)
        assert list(parked) == [*"abcd"]

    def test_one_with_time_left_stays(self, staging: PostgresStaging) -> None:
        add("a", series=S, timeout=60)
        add("b", series="no time-out")
        assert staging.expire(limit=10) == 0
        assert staging.clear(limit=10) is None
        assert staged() == ["a", "b"]

    def test_from_then_on_it_takes_nothing(self, staging: PostgresStaging) -> None:
        overdue("a")
        staging.expire(limit=10)
        for call in (release_series, discard_series):
            with transaction.atomic(), pytest.raises(SeriesClosed, match="has expired"):
                call(S)
        with pytest.raises(SeriesClosed, match="has expired"):
            add("b", series=S)
        staging.clear(limit=10)
        with pytest.raises(SeriesClosed, match="has expired at 20"):
            add("b", series=S)

    def test_who_stages_in_it_now_may_complete_it(
        self, staging: PostgresStaging
    ) -> None:
        overdue("a")
        with begun() as stager:
            stager.do(add, "b", expected=2)
            assert staging.expire(limit=10) == 0
            assert staging.clear(limit=10) is None
            stager.commit()
        assert staging.expire(limit=10) == 0
        assert (sent(), staged()) == (["a", "b"], [])

    def test_what_was_staged_last_is_parked_too(self, staging: PostgresStaging) -> None:
        overdue("a")
        with begun() as stager:
            stager.do(add, "b")
            assert staging.expire(limit=10) == 0
            stager.commit()
        assert staging.expire(limit=10) == 1
        assert staging.clear(limit=10) == ExpiredSeries(S, 2, "park")

    @pytest.mark.parametrize("commits", [True, False])
    def test_a_release_that_came_first_wins_if_it_commits(
        self, staging: PostgresStaging, *, commits: bool
    ) -> None:
        overdue("a")
        with begun() as releaser:
            releaser.do(release_series, S)
            assert staging.expire(limit=10) == 0
            if commits:
                releaser.commit()
            else:
                releaser.roll_back()
        assert staging.expire(limit=10) == int(not commits)
        staging.clear(limit=10)
        assert len(sent()) == int(commits)
        assert ParkedRecord.objects.count() == int(not commits)

    def test_a_closed_series_is_forgotten_after_a_while(
        self, staging: PostgresStaging
    ) -> None:
        add("a", series="old", expected=1)
        add("b", series="young", expected=1)
        add("c", series="open")
        Series.objects.filter(name="old").update(closed_at=Now() - timedelta(hours=2))
        assert agenda(staging).purgeable_at == 0.0
        assert [staging.forget(limit=10) for _ in range(2)] == [1, 0]
        assert set(Series.objects.values_list("name", flat=True)) == {"young", "open"}
        add("d", series="old")

    def test_its_connection_can_be_lost(
        self, staging: PostgresStaging, postgres: psycopg.Connection
    ) -> None:
        agenda(staging)
        postgres.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE application_name = 'django-outbox' AND datname = current_database()"
        )
        with pytest.raises(DatabaseError):
            staging.agenda()
        assert agenda(staging).due == DAY
        staging.close()
