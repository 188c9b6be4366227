"""Readings for people who watch: what they say, and what they cost."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from django_outbox.models import ArchivedRecord, OutboxRecord, ParkedRecord, Series
from django_outbox.operations import leader, live_reading
from django_outbox.operations.live_reading import MAX_EVENTS, Rates, RateWindow, read

from ..waiting import eventually


def record(topic: str = "orders", key: str = "secret", **columns: Any) -> OutboxRecord:
    made: OutboxRecord = OutboxRecord.objects.create(
        kafka_topic=topic, kafka_key=key, kafka_value="secret", **columns
    )
    return made


@pytest.mark.django_db
def test_a_reading_has_no_payload() -> None:
    stuck = record(attempts=2, last_error="CODE")
    record(create_time=Now() - timedelta(seconds=5))
    ParkedRecord.objects.create(
        id=4_000, kafka_topic="t", kafka_key="secret", attempts=3, last_error="OTHER"
    )
    Series.objects.create(
        name="s", state="expired", closed_at=Now() - timedelta(hours=1)
    )
    reading = read("default")
    assert json.loads(json.dumps(reading)) == reading
    assert "secret" not in str(reading)
    assert reading["backlog"]["records"] == 2
    assert reading["blocked"] == {
        "is_capped": False,
        "rows": [
            {
                "id": stuck.pk,
                "kafka_topic": "orders",
                "attempts": 2,
                "last_error": "CODE",
            }
        ],
    }
    assert reading["parked"] == {"records": 1, "is_capped": False}
    assert [event["text"] for event in reading["events"]] == [
        "Record 4000 to t was parked after 3 attempts: OTHER",
        "Series s expired: park",
    ]
    assert "keys" not in reading


@pytest.mark.django_db
def test_shares_of_topics_and_keys_come_from_the_oldest_rows() -> None:
    for n in range(5):
        record("orders", f"key-{n % 2}")
    record("invoices", "key-0")
    with connection.cursor() as cursor:
        # Plain SQL can write it.
        cursor.execute(
            "UPDATE outbox SET create_time = '-infinity' WHERE kafka_topic = 'invoices'"
        )
    rows = OutboxRecord.objects.all()
    shares = rows.shares("kafka_topic")
    assert [(s["kafka_topic"], s["records"]) for s in shares] == [
        ("orders", 5),
        ("invoices", 1),
    ]
    assert 0 <= shares[0]["oldest_age"] < 60
    assert shares[1]["oldest_age"] is None
    assert [s["records"] for s in rows.shares("kafka_topic", cap=4)] == [4]
    keys = read("default", with_keys=True)["keys"]
    assert [(k["kafka_key"], k["records"]) for k in keys] == [
        ("key-0", 3),
        ("key-1", 2),
        ("key-0", 1),
    ]


@pytest.mark.django_db
def test_every_query_of_a_reading_is_bounded(settings: Settings) -> None:
    settings.DJANGO_OUTBOX = settings.DJANGO_OUTBOX | {"ARCHIVE": True}
    with CaptureQueriesContext(connection) as queries:
        read("default", with_keys=True)
    reads = [q["sql"] for q in queries if '"outbox' in q["sql"]]
    assert len(reads) >= 9
    assert all("LIMIT" in sql for sql in reads if "to_regclass" not in sql), reads


@pytest.mark.django_db
def test_blocked_records_are_looked_for_among_the_oldest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for attempts in (0, 1, 2):
        record(attempts=attempts)
    for sample, attempts_found in ((1, []), (2, [1]), (3, [1, 2])):
        monkeypatch.setattr(live_reading, "SAMPLE", sample)
        rows = read("default")["blocked"]["rows"]
        assert [row["attempts"] for row in rows] == attempts_found


@pytest.mark.django_db
def test_times_are_in_utc_also_where_django_has_no_time_zones(
    settings: Settings,
) -> None:
    settings.USE_TZ, settings.TIME_ZONE = False, "Asia/Kolkata"
    ParkedRecord.objects.create(id=1, kafka_topic="t", kafka_key="k")
    reading = read("default")
    times = [reading["time"], *(event["time"] for event in reading["events"])]
    now = datetime.now(UTC)
    for text in times:
        assert abs(now - datetime.fromisoformat(text)) < timedelta(minutes=5)


@pytest.mark.django_db
def test_only_the_latest_events_are_listed() -> None:
    for number in range(MAX_EVENTS + 3):
        ParkedRecord.objects.create(id=number, kafka_topic="t", kafka_key="k")
    texts = [event["text"] for event in read("default")["events"]]
    assert len(texts) == MAX_EVENTS
    assert texts[0].startswith(f"Record {MAX_EVENTS + 2} to t")


@pytest.mark.django_db
def test_the_latency_is_that_of_the_archive(settings: Settings) -> None:
    assert read("default")["latency"] is None
    settings.DJANGO_OUTBOX = settings.DJANGO_OUTBOX | {"ARCHIVE": True}
    assert read("default")["latency"] == {"records": 0, "p50": None, "p99": None}
    for number in range(1, 11):
        ArchivedRecord.objects.create(
            id=number,
            kafka_topic="t",
            kafka_key="k",
            archived_at=Now(),
            create_time=Now() - timedelta(seconds=number),
        )
    latency = read("default")["latency"]
    assert latency["records"] == 10
    assert latency["p50"] == pytest.approx(5.5, abs=0.1)
    assert latency["p99"] == pytest.approx(9.9, abs=0.1)


@pytest.mark.django_db(transaction=True)
def test_the_counters_follow_what_comes_and_goes() -> None:
    before = read("default")["counters"]
    rows = [record() for _ in range(7)]
    for row in rows[:4]:
        row.delete()

    def moved() -> bool:
        # A session publishes its counters with a later statement, and those of the
        # tests before this one, too.
        now = read("default")["counters"]
        return (
            now["inserted"] - before["inserted"] >= 7
            and now["deleted"] - before["deleted"] >= 4
        )

    eventually(moved, what="the statistics of the table", interval=0.2)


def reading_at(second: int, inserted: int, deleted: int) -> dict[str, Any]:
    return {
        "time": f"2026-11-24T10:00:{second:02d}+00:00",
        "counters": {"inserted": inserted, "deleted": deleted},
    }


def test_a_rate_is_an_average_over_the_last_seconds() -> None:
    window = RateWindow()
    assert window.rates(reading_at(0, 1_000, 900)) is None
    assert window.rates(reading_at(5, 1_500, 900)) == Rates(100, 0)
    assert window.rates(reading_at(10, 2_000, 1_400)) == Rates(100, 50)
    assert window.rates(reading_at(20, 2_000, 1_500)) == Rates(0, 10)


def test_counters_that_began_again_give_no_rate() -> None:
    window = RateWindow()
    window.rates(reading_at(0, 1_000, 900))
    assert window.rates(reading_at(5, 10, 9)) is None
    assert window.rates(reading_at(6, 20, 10)) == Rates(10, 1)
    assert window.rates({"time": "2026-11-24T10:00:07+00:00", "counters": None}) is None


@pytest.mark.django_db
def test_top_for_machines_has_a_reading_a_line() -> None:
    out = StringIO()
    call_command(
        *("outbox", "top", "--json", "--count", "2", "--interval", "0.1"), stdout=out
    )
    first, second = map(json.loads, out.getvalue().splitlines())
    assert (first["rates"], first["table"]) == (None, "outbox")
    assert set(second["rates"]) == {"written", "sent"}
    assert set(second["leader"]) == {"leader", "reason"}


@pytest.mark.django_db
def test_top_looks_for_heartbeats_between_two_readings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A look reads a limited number, and takes each for as recent as the look."""
    looks = 0

    class FakeWatch:
        """A `LeaderWatch` that needs no broker."""

        def __init__(self, alias: str) -> None:
            pass

        def state(self) -> dict[str, Any]:
            nonlocal looks
            looks += 1
            return {"leader": f"looks-{looks}", "reason": ""}

        def close(self) -> None:
            pass

    monkeypatch.setattr(leader, "LeaderWatch", FakeWatch)
    monkeypatch.setattr(leader, "WATCH_INTERVAL", 0.01)
    out = StringIO()
    call_command("outbox", "top", "--count", "2", "--interval", "0.5", stdout=out)
    first, second = out.getvalue().splitlines()
    assert first.startswith("leader looks-1 ")
    assert second.startswith(f"leader looks-{looks} ")
    assert looks >= 5


@pytest.mark.django_db
def test_top_without_a_terminal_has_a_reading_a_line() -> None:
    record(attempts=1)
    out = StringIO()
    call_command("outbox", "top", "--count", "1", stdout=out)
    (line,) = out.getvalue().splitlines()
    assert line.startswith("leader unknown (")
    assert line.endswith("blocked 1 record")
