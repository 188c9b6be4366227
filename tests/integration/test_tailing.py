"""`manage.py outbox tail`: new records as they come."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from io import StringIO
from typing import Any

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection, connections
from pytest_django import Settings

from django_outbox import stash
from django_outbox.management.live_verbs import _line_of_record
from django_outbox.models import ArchivedRecord, OutboxRecord
from django_outbox.operations import tailing
from django_outbox.operations.tailing import Tail

from ..waiting import eventually


def record(topic: str = "orders", **columns: Any) -> int:
    made = OutboxRecord.objects.create(
        kafka_topic=topic, kafka_key="secret", kafka_value="secret", **columns
    )
    return int(made.pk)


def shown(tail: Tail) -> list[int]:
    return [row["id"] for row in tail.look()]


@pytest.mark.django_db
def test_each_new_record_is_shown_once_and_without_its_payload() -> None:
    record()
    tail = Tail("default")
    assert tail.look() == []
    first, second = record(), record()
    found = tail.look()
    assert [row["id"] for row in found] == [first, second]
    assert "secret" not in str(found)
    third = record()
    assert shown(tail) == [third]
    assert shown(tail) == []


@pytest.mark.django_db
def test_only_one_topic_can_be_followed() -> None:
    tail = Tail("default", topic="orders")
    record("invoices")
    wanted = record("orders")
    assert shown(tail) == [wanted]


@pytest.mark.django_db
def test_other_topics_are_not_read_again_with_each_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tailing, "REMEMBERED", 3)
    for _ in range(5):
        last = record("invoices")
    tail = Tail("default", topic="orders")
    assert tail._above == last - 3
    for _ in range(5):
        last = record("invoices")
    assert shown(tail) == []
    assert tail._above == last - 3


@pytest.mark.django_db
def test_the_archive_is_not_read_again_with_each_look(settings: Settings) -> None:
    settings.DJANGO_OUTBOX = {**settings.DJANGO_OUTBOX, "ARCHIVE": True}
    tail = Tail("default")
    began = tail._sent_at
    tail.look()
    assert tail._sent_at > began


@pytest.mark.django_db(transaction=True)
def test_a_transaction_that_commits_late_is_seen(
    postgres: psycopg.Connection[Any],
) -> None:
    tail = Tail("default")
    insert = (
        "INSERT INTO outbox (kafka_topic, kafka_key) VALUES ('t', 'k') RETURNING id"
    )
    with postgres.transaction():
        row = postgres.execute(insert).fetchone()
        later = record()
        assert shown(tail) == [later]
    assert row is not None
    assert shown(tail) == [row[0]]


@pytest.mark.django_db(transaction=True)
def test_what_was_forgotten_is_only_what_is_oldest(
    postgres: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tailing, "REMEMBERED", 3)
    tail = Tail("default")
    first, second = record(), record()
    insert = "INSERT INTO outbox (kafka_topic, kafka_key) VALUES ('t', 'k')"
    with postgres.transaction():
        row = postgres.execute(f"{insert} RETURNING id").fetchone()
        assert shown(tail) == [first, second]
        later = [record(), record()]
        assert shown(tail) == later
    assert row is not None
    assert shown(tail) == [row[0]]


@pytest.mark.django_db
def test_what_commits_during_a_look_comes_with_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tailing, "REMEMBERED", 3)
    tail = Tail("default")
    made: list[int] = []
    remember = tail._remember

    def commit(new: dict[int, dict[str, Any]]) -> None:
        made.extend(record() for _ in range(0 if made else 5))
        remember(new)

    monkeypatch.setattr(tail, "_remember", commit)
    assert shown(tail) == []
    assert shown(tail) == made


@pytest.mark.django_db
def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tailing, "REMEMBERED", 5)
    monkeypatch.setattr(tailing, "PAGE", 3)
    tail = Tail("default")
    ids = [record() for _ in range(20)]
    found: list[int] = []
    while new := shown(tail):
        assert len(new) <= 3
        found += new
    assert found == ids
    assert len(tail._seen) == 5


@pytest.mark.django_db
def test_with_an_archive_sent_records_are_shown_too(settings: Settings) -> None:
    settings.DJANGO_OUTBOX = settings.DJANGO_OUTBOX | {"ARCHIVE": True}
    ArchivedRecord.objects.create(id=1, kafka_topic="orders", kafka_key="k")
    with connection.cursor() as cursor:
        # Time stands still in a transaction, as far as now() goes.
        cursor.execute("UPDATE outbox_archive SET create_time = now() - interval '1 h'")
    tail = Tail("default")
    waiting = record(id=9_000_001)
    ArchivedRecord.objects.create(id=9_000_000, kafka_topic="orders", kafka_key="k")
    assert shown(tail) == [9_000_000, waiting]
    # It was sent since.
    ArchivedRecord.objects.create(id=waiting, kafka_topic="orders", kafka_key="k")
    assert shown(tail) == []


@pytest.mark.django_db
def test_a_whole_page_of_sent_records_is_followed_without_time_zones(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tailing, "PAGE", 1)
    settings.USE_TZ, settings.TIME_ZONE = False, "Asia/Kolkata"
    settings.DJANGO_OUTBOX = settings.DJANGO_OUTBOX | {"ARCHIVE": True}
    tail = Tail("default")
    for number in (9_000_000, 9_000_001):
        ArchivedRecord.objects.create(id=number, kafka_topic="orders", kafka_key="k")
        assert shown(tail) == [number]


@pytest.mark.django_db
def test_a_record_without_a_finite_time_is_shown_too() -> None:
    tail = Tail("default")
    number = record()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE outbox SET create_time = 'infinity'")
    (row,) = tail.look()
    assert row["create_time"] is None
    assert _line_of_record(row) == f"-  record {number} to orders"


@pytest.fixture
def writer() -> Iterator[threading.Event]:
    """Stashes a message now and then until a stop is requested."""
    stop = threading.Event()

    def write() -> None:
        from django.db import transaction

        while not stop.wait(0.05):
            with transaction.atomic():
                stash("orders", key="secret", value="secret")
        connections.close_all()

    thread = threading.Thread(target=write)
    thread.start()
    yield stop
    stop.set()
    thread.join()


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("writer")
def test_the_command_prints_records_as_they_come() -> None:
    out = StringIO()
    call_command("outbox", "tail", "--count", "2", stdout=out)
    note, first, second = out.getvalue().splitlines()
    assert note.startswith("Without ARCHIVE")
    assert " record " in first
    assert second.endswith(" to orders")
    out = StringIO()
    call_command("outbox", "tail", "--count", "3", "--json", stdout=out)
    rows = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [row["kafka_topic"] for row in rows] == ["orders"] * 3
    assert "T" in rows[0]["create_time"]
    assert "secret" not in out.getvalue()
    eventually(lambda: OutboxRecord.objects.count() >= 5)
