"""The roles of harvester and consumer do all their work under the grants."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import psycopg
import pytest
from django.db import DataError, ProgrammingError, connection, transaction
from django.db.models.functions import Now

from django_outbox import once, stash
from django_outbox.exceptions import DatabaseError
from django_outbox.message.record import Failure, KeyToRead
from django_outbox.models import (
    ArchivedRecord,
    ConsumerOffset,
    OutboxRecord,
    ParkedRecord,
    ProcessedMessage,
)
from django_outbox.operations import archiving, by_hand, live_reading
from django_outbox.operations.grants import grants
from django_outbox.operations.replaying import Selection, replay
from django_outbox.operations.tailing import Tail
from django_outbox.postgres.connection import Database
from django_outbox.postgres.marked_table import PostgresOutbox

LEADER = "11111111-1111-4111-8111-111111111111"
HOUR = timedelta(hours=1)


def test_a_consumer_needs_no_more_than_its_grants(
    postgres: psycopg.Connection, role: str
) -> None:
    for statement in grants("outbox", consumer=role, app=role):
        postgres.execute(statement)
    group, topic = "billing", "orders"
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL ROLE {role}")
        with once("a key", consumer=group) as run:
            assert run.is_first
            assert ConsumerOffset.objects.all().advance(group, topic, 0, 4)
            stash("effects", key="k", value=None)
            run.respond("done")
        with once("a key", consumer=group) as run:
            assert not run.is_first
        assert ConsumerOffset.objects.all().positions(group) == {(topic, 0): (5, "")}
        ConsumerOffset.objects.all().rewind(group, topic, 0)
        with pytest.raises(ProgrammingError, match="denied"), transaction.atomic():
            ProcessedMessage.objects.all().delete()


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT FROM outbox",
        "DELETE FROM outbox",
        "UPDATE outbox SET kafka_value = 'forged'",
        "INSERT INTO outbox (id, kafka_topic, kafka_key) VALUES (1, 't', 'k')",
        "INSERT INTO outbox (leader_id, kafka_topic, kafka_key)"
        " VALUES (gen_random_uuid(), 't', 'k')",
        "INSERT INTO outbox (attempts, kafka_topic, kafka_key) VALUES (-1, 't', 'k')",
        "SELECT FROM outbox_parked",
        "SELECT FROM outbox_archive",
        "UPDATE outbox_staged SET kafka_value = 'forged'",
        "DELETE FROM outbox_series",
        "UPDATE outbox_series SET expires_at = now()",
        "SELECT FROM outbox_processed",
        "SELECT nextval('outbox_id_seq')",
        "SELECT outbox_archive_tend(0)",
    ],
)
def test_the_app_can_do_no_more_than_its_grants(
    postgres: psycopg.Connection, role: str, statement: str
) -> None:
    for grant in grants("outbox", app=role):
        postgres.execute(grant)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL ROLE {role}")
        with pytest.raises(ProgrammingError, match="denied"), transaction.atomic():
            cursor.execute(statement)


def test_the_harvester_cannot_empty_the_archive(
    postgres: psycopg.Connection, role: str
) -> None:
    for statement in grants("outbox", harvester=role):
        postgres.execute(statement)
    ArchivedRecord.objects.create(
        id=1, kafka_topic="t", kafka_key="k", archived_at=Now() - timedelta(hours=23)
    )
    for retention in (1e-9, 86_399, 86_400):
        with suppress(DataError), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL ROLE {role}")
            cursor.execute("SELECT outbox_archive_tend(%s)", [retention])
    assert ArchivedRecord.objects.count() == 1


def test_an_operator_may_watch_and_act_on_records(
    postgres: psycopg.Connection, role: str
) -> None:
    for statement in grants("outbox", operator=role):
        postgres.execute(statement)
    failed = {"kafka_topic": "t", "kafka_key": "k", "attempts": 1}
    one, two, three = (OutboxRecord.objects.create(**failed).id for _ in range(3))
    archived = ArchivedRecord.objects.create(id=one, **failed)
    archived.refresh_from_db()
    moment = archived.archived_at
    period = Selection(since=moment - HOUR, until=moment + HOUR)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL ROLE {role}")
        tail = Tail("default")
        assert live_reading.read("default", with_keys=True)["backlog"]["records"] == 3
        assert by_hand.park("default", [one, two]).left == 0
        assert by_hand.skip("default", [three]).left == 0
        first, second = ParkedRecord.objects.values_list("parked_id", flat=True)
        assert by_hand.release("default", [first]).left == 0
        assert by_hand.skip_parked("default", [second]).left == 0
        assert len(replay("default", period)) == 1
        assert len(tail.look()) == 1


def test_the_leader_may_prune_processed_keys(
    postgres: psycopg.Connection, role: str
) -> None:
    for statement in grants("outbox", harvester=role):
        postgres.execute(statement)
    ProcessedMessage.objects.create(consumer="c", key="k")
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL ROLE {role}")
        assert sum(ProcessedMessage.objects.all().prune()) == 1


def test_the_harvester_may_tend_and_nobody_else(
    postgres: psycopg.Connection, role: str
) -> None:
    with pytest.raises(ProgrammingError, match="denied"), transaction.atomic():
        tend_as(role)
    for statement in grants("outbox", harvester=role):
        postgres.execute(statement)
    tend_as(role)


def tend_as(role: str) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL ROLE {role}")
        archiving.tend()


@pytest.mark.parametrize("has_archive", [False, True])
def test_the_harvester_needs_no_more_than_its_grants(
    database: Database, has_archive: bool
) -> None:
    for number in range(4):
        OutboxRecord.objects.create(kafka_topic="t", kafka_key=str(number))
    table = PostgresOutbox(database, has_archive=has_archive)
    table.ping()
    first, second, third, fourth = table.mark(LEADER, limit=10)
    assert table.purge(LEADER, [first]) == 1
    assert table.fail(LEADER, [Failure(second, "NOT_ENOUGH_REPLICAS")]) == 1
    table.reset(LEADER, [KeyToRead(second.ordering_key, 1)])
    assert table.park(LEADER, [Failure(third, "MSG_SIZE_TOO_LARGE")]) == 1
    assert table.backlog().records == 2
    assert table.topics(limit=1) == ((("t", 2),), 0)
    table.dead_tuples()
    assert table.numbering().increment == 1
    left = OutboxRecord.objects.order_by("id").values_list("id", flat=True)
    assert list(left) == [second.id, fourth.id]
    assert ParkedRecord.objects.get().id == third.id
    assert ArchivedRecord.objects.count() == int(has_archive)


def test_the_harvester_sees_that_a_writer_is_open_and_not_since_when(
    database: Database, database_url: str
) -> None:
    """So its age counts from the first look."""
    table = PostgresOutbox(database)
    with psycopg.connect(database_url) as writer:
        writer.execute("INSERT INTO outbox (kafka_topic, kafka_key) VALUES ('t', 'k')")
        assert list(table.writer_ages().values()) == [None]
        writer.rollback()
    assert table.writer_ages() == {}


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO outbox (id, kafka_topic, kafka_key) VALUES (1, 't', 'k')",
        "INSERT INTO outbox_staged (kafka_topic, kafka_key) VALUES ('t', 'k')",
        "UPDATE outbox_staged SET kafka_value = 'forged'",
        "UPDATE outbox_series SET name = 'forged'",
        "UPDATE outbox SET kafka_value = 'forged'",
        "SELECT FROM outbox_parked",
        "DELETE FROM outbox_archive",
        "SELECT FROM outbox_archive",
        "INSERT INTO outbox_archive (id, kafka_topic, kafka_key, archived_at)"
        " VALUES (1, 't', 'k', '2020-01-01')",
        "INSERT INTO outbox_parked (id, kafka_topic, kafka_key, parked_at)"
        " VALUES (1, 't', 'k', '2020-01-01')",
        "TRUNCATE outbox",
        "SELECT setval('outbox_id_seq', 1)",
        "SELECT response FROM outbox_processed",
        "INSERT INTO outbox_processed (consumer, key) VALUES ('c', 'k')",
        "UPDATE outbox_offsets SET next_offset = 0",
        "SELECT FROM auth_user",
    ],
)
def test_the_harvester_can_do_no_more_than_its_grants(
    database: Database, statement: str
) -> None:
    with (
        pytest.raises(DatabaseError, match="GRANT"),
        database.session() as connection,
    ):
        connection.execute(statement.encode())
