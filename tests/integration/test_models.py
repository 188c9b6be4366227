"""The verbs on the QuerySets."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from typing import Any

import pytest
from django.db import connection, connections
from django.db.models.functions import Now
from django.db.models.signals import post_delete
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from django_outbox.models import ArchivedRecord, OutboxRecord, ParkedRecord

LEADER = uuid.UUID(int=1)


def parked(number: int, **values: Any) -> ParkedRecord:
    """Park a record with this id."""
    record: ParkedRecord = ParkedRecord.objects.create(
        **{
            "id": number,
            "kafka_topic": "orders",
            "kafka_key": "k",
            "attempts": 3,
            "last_error": "MSG_SIZE_TOO_LARGE",
            **values,
        }
    )
    return record


@pytest.mark.django_db
def test_a_released_record_is_what_it_was() -> None:
    message_id = uuid.uuid4()
    was = {
        "kafka_topic": "payments",
        "kafka_key": "ü",
        "kafka_header_keys": ["a", "b"],
        "kafka_header_values": ["1", "2"],
        "message_id": message_id,
        "kafka_partition": 3,
        "cluster_id": 2,
    }
    before = parked(41, **was, kafka_value_bytes=b"\x00\xff")
    before.create_time -= timedelta(days=2)
    before.save()
    assert ParkedRecord.objects.all().release() == 1
    assert not ParkedRecord.objects.exists()
    row = OutboxRecord.objects.get(id=41)
    assert {name: getattr(row, name) for name in was} == was
    assert bytes(row.kafka_value_bytes or b"") == b"\x00\xff"
    # Other clusters take over what is old.
    assert row.create_time - before.create_time > timedelta(days=1)
    assert (row.leader_id, row.attempts, row.last_error) == (None, 0, "")


@pytest.mark.django_db
def test_a_released_record_comes_before_its_unsent_followers() -> None:
    follower = OutboxRecord.objects.create(kafka_topic="orders", kafka_key="k")
    parked(follower.id - 1)
    ParkedRecord.objects.all().release()
    first, second = OutboxRecord.objects.order_by("id")
    assert (first.id, second.id) == (follower.id - 1, follower.id)


@pytest.mark.django_db
def test_only_chosen_records_are_released() -> None:
    for number in (1, 2, 3):
        parked(number)
    assert ParkedRecord.objects.filter(id__in=[1, 3, 9]).release() == 2
    assert list(ParkedRecord.objects.values_list("id", flat=True)) == [2]


@pytest.mark.django_db
def test_a_record_whose_id_is_taken_stays_parked() -> None:
    taken = OutboxRecord.objects.create(kafka_topic="orders", kafka_key="other")
    parked(taken.id)
    parked(taken.id + 1000)
    assert ParkedRecord.objects.all().release() == 1
    assert ParkedRecord.objects.get().id == taken.id


@pytest.mark.django_db
def test_of_two_records_with_one_id_the_first_goes_and_the_others_do() -> None:
    """After a failover the database may give an id again."""
    first, second = parked(7), parked(7)
    parked(8)
    assert ParkedRecord.objects.all().release() == 2
    assert ParkedRecord.objects.get() == second
    assert first.message_id != second.message_id
    assert OutboxRecord.objects.get(id=7).message_id == first.message_id


@pytest.mark.django_db
def test_records_with_one_message_id_can_be_parked_together() -> None:
    """Plain SQL may use a message id twice; that must not hold up the harvest."""
    message_id = uuid.uuid4()
    parked(1, message_id=message_id)
    parked(2, message_id=message_id)
    assert ParkedRecord.objects.all().release() == 2


@pytest.mark.django_db(transaction=True)
def test_two_people_who_release_at_once_release_once() -> None:
    for number in range(1, 101):
        parked(number)
    start = Barrier(2)

    def release() -> int:
        try:
            records = ParkedRecord.objects.all()
            start.wait(timeout=10)
            return records.release()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(release) for _ in range(2)]
        assert sum(job.result(timeout=10) for job in jobs) == 100
    assert OutboxRecord.objects.count() == 100


@pytest.mark.django_db(databases=["default", "other"])
def test_a_release_stays_in_its_database() -> None:
    ParkedRecord.objects.using("other").create(id=1, kafka_topic="t", kafka_key="k")
    assert ParkedRecord.objects.using("other").release() == 1
    assert OutboxRecord.objects.using("other").count() == 1
    assert not OutboxRecord.objects.exists()


@pytest.mark.django_db
def test_prune_deletes_what_is_old_chunk_by_chunk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("django_outbox.models.aging.PRUNE_CHUNK", 10)
    for number in range(25):
        archived(number, days=10)
    archived(100, days=1)
    old = ArchivedRecord.objects.older_than(timedelta(days=5))
    with CaptureQueriesContext(connection) as queries:
        assert list(old.prune()) == [10, 10, 5]
    assert [row.id for row in ArchivedRecord.objects.all()] == [100]
    assert len([q for q in queries if "DELETE" in q["sql"]]) == 3


@pytest.mark.django_db
def test_prune_reads_no_row_for_receivers_of_all_models() -> None:
    """As audit logs have them: the role of the harvester may not read all columns."""
    told: list[Any] = []

    def tell(instance: Any, **_: Any) -> None:
        told.append(instance)

    archived(1, days=10)
    post_delete.connect(tell)
    try:
        with CaptureQueriesContext(connection) as queries:
            assert list(ArchivedRecord.objects.older_than(timedelta(days=5)).prune())
    finally:
        post_delete.disconnect(tell)
    assert told == []
    assert len(queries) == 1


class _ReadsElsewhere:
    def db_for_read(self, model: Any, **hints: Any) -> str:
        return "replica"


@pytest.mark.django_db
def test_prune_deletes_in_the_database_for_writes(settings: Settings) -> None:
    archived(1, days=10)
    settings.DATABASE_ROUTERS = [_ReadsElsewhere()]
    assert list(ArchivedRecord.objects.older_than(timedelta(days=5)).prune()) == [1]


@pytest.mark.django_db
def test_a_record_that_came_back_can_be_archived_again() -> None:
    """As after a failover: same id, same message id, at another time."""
    archived(1, days=2)
    archived(1, days=1)
    assert ArchivedRecord.objects.filter(id=1).count() == 2


def archived(number: int, *, days: int) -> None:
    """Archive a record with this id as if so many days ago."""
    ArchivedRecord.objects.create(
        id=number,
        kafka_topic="orders",
        kafka_key="k",
        archived_at=Now() - timedelta(days=days),
    )


@pytest.mark.django_db
def test_the_backlog_of_an_empty_table() -> None:
    assert OutboxRecord.objects.all().backlog() == (0, False, 0.0)


@pytest.mark.django_db
def test_the_backlog_ages_the_oldest_by_the_databases_clock() -> None:
    OutboxRecord.objects.create(
        kafka_topic="t", kafka_key="k", create_time=Now() - timedelta(seconds=90)
    )
    OutboxRecord.objects.create(kafka_topic="t", kafka_key="k")
    backlog = OutboxRecord.objects.all().backlog()
    assert (backlog.records, backlog.is_capped) == (2, False)
    assert 90 <= backlog.oldest_age < 120


@pytest.mark.django_db
def test_the_backlog_stops_counting_at_the_cap() -> None:
    for _ in range(3):
        OutboxRecord.objects.create(kafka_topic="t", kafka_key="k")
    backlog = OutboxRecord.objects.all().backlog(cap=2)
    assert (backlog.records, backlog.is_capped) == (2, True)


@pytest.mark.django_db
def test_blocked_rows_are_those_that_have_failed() -> None:
    OutboxRecord.objects.create(kafka_topic="t", kafka_key="k")
    failed = OutboxRecord.objects.create(kafka_topic="t", kafka_key="k", attempts=2)
    assert list(OutboxRecord.objects.all().blocked()) == [failed]
