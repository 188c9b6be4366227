"""`manage.py outbox`."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.db.models.functions import Now

from django_outbox import Message, open_series, stash_many
from django_outbox.management.identity import report
from django_outbox.management.series import close_series
from django_outbox.models import (
    ArchivedRecord,
    ConsumerOffset,
    OutboxRecord,
    ParkedRecord,
    ProcessedMessage,
    Series,
    StagedRecord,
)

pytestmark = pytest.mark.django_db


def run(*arguments: str) -> str:
    """Run the command and return what it prints."""
    out = StringIO()
    call_command("outbox", *arguments, stdout=out)
    return out.getvalue()


@pytest.fixture
def some_of_each() -> None:
    """One row that waits, one that is blocked, two that are parked; three staged."""
    stash_many([Message("t", key="secret")] * 2, series="order-17")
    stash_many([Message("t", key="secret")], not_before=timedelta(hours=1))
    OutboxRecord.objects.create(
        id=9_000_010,
        kafka_topic="orders",
        kafka_key="secret",
        kafka_value="secret",
        create_time=Now() - timedelta(seconds=5),
    )
    OutboxRecord.objects.create(
        id=9_000_011,
        kafka_topic="orders",
        kafka_key="secret",
        attempts=4,
        last_error="TOPIC_AUTHORIZATION_FAILED\nfaked line",
    )
    for number in (7, 8):
        ParkedRecord.objects.create(id=number, kafka_topic="t", kafka_key="secret")


@pytest.mark.usefixtures("some_of_each")
def test_status_for_people() -> None:
    shown = run("status")
    assert "waiting  2, oldest 5." in shown
    assert "staged   2 in 1 open series, 1 for later\n" in shown
    assert "parked   2\n" in shown
    assert "blocked  1\n" in shown
    assert (
        r"id 9000011 to orders, 4 attempts: 'TOPIC_AUTHORIZATION_FAILED\nfaked line'"
        in shown
    )
    assert "secret" not in shown


@pytest.mark.usefixtures("some_of_each")
def test_status_for_machines() -> None:
    shown = json.loads(run("status", "--format", "json"))
    assert 5 <= shown["backlog"].pop("oldest_age") < 60
    assert shown.pop("identity") == report("default")
    assert shown == {
        "database": "default",
        "table": "outbox",
        "backlog": {"records": 2, "is_capped": False},
        "staged": {"series": 1, "in_series": 2, "delayed": 1},
        "parked": 2,
        "blocked": [
            {
                "id": 9_000_011,
                "kafka_topic": "orders",
                "attempts": 4,
                "last_error": "TOPIC_AUTHORIZATION_FAILED\nfaked line",
            }
        ],
    }


@pytest.mark.usefixtures("some_of_each")
def test_release_of_one() -> None:
    assert run("release", "7", "7") == "1 back in the outbox\n"
    assert ParkedRecord.objects.get().id == 8


@pytest.mark.usefixtures("some_of_each")
def test_release_of_all() -> None:
    assert run("release", "--all") == "2 back in the outbox\n"
    assert not ParkedRecord.objects.exists()


@pytest.mark.usefixtures("some_of_each")
def test_release_of_all_says_what_stays() -> None:
    OutboxRecord.objects.create(id=7, kafka_topic="t", kafka_key="k")
    with pytest.raises(CommandError, match="1 of 2 are not parked, or their id is"):
        run("release", "--all")
    assert ParkedRecord.objects.get().id == 7


@pytest.mark.usefixtures("some_of_each")
def test_release_of_one_that_is_not_parked_says_so() -> None:
    with pytest.raises(CommandError, match="1 of 2 are not parked"):
        run("release", "7", "99")
    assert OutboxRecord.objects.filter(id=7).exists()


@pytest.mark.parametrize("arguments", [["release"], ["release", "1", "--all"]])
def test_release_needs_ids_or_all(arguments: list[str]) -> None:
    with pytest.raises(CommandError, match="Name the ids of parked records, or --all"):
        run(*arguments)


@pytest.mark.usefixtures("some_of_each")
def test_series_lists_those_that_are_open() -> None:
    stash_many([Message("t", key="k")], series="done", expected=1)
    open_series("later", expected=3, timeout=60, on_timeout="discard")
    first, second = run("series").splitlines()
    assert first == "'order-17'  2 staged, no time-out"
    assert second.startswith("'later'  0 of 3 staged, discard at 20")


def test_series_without_any_says_so() -> None:
    assert run("series", "list") == "no series is open\n"


@pytest.mark.usefixtures("some_of_each")
def test_series_can_be_released_and_discarded() -> None:
    stash_many([Message("t", key="k")], series="other")
    assert run("series", "release", "order-17") == "'order-17'  2 in the outbox\n"
    assert run("series", "discard", "other") == "'other'  1 discarded\n"
    assert (OutboxRecord.objects.count(), StagedRecord.objects.count()) == (4, 1)
    with pytest.raises(CommandError, match="'order-17' was released at"):
        run("series", "discard", "order-17")
    assert Series.objects.filter(state="released").count() == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["series", "release"], "Name the series to release"),
        (["series", "discard", "nobody"], "there is no 'nobody'"),
        (["series", "release", ""], "a name has 1 to"),
    ],
)
def test_series_that_cannot_be_closed_are_one_line(
    arguments: list[str], message: str
) -> None:
    with pytest.raises(CommandError, match=message):
        run(*arguments)


@pytest.mark.django_db(transaction=True)
def test_a_series_is_told_when_it_is_committed() -> None:
    with transaction.atomic():
        open_series("order-17")
    closing = close_series("default", "release", ["order-17"])
    assert next(closing) == "'order-17'  0 in the outbox"
    assert not connection.in_atomic_block


def test_prune_shows_its_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_outbox.models.pruning.PRUNE_CHUNK", 2)
    for number in range(5):
        ArchivedRecord.objects.create(
            id=number,
            kafka_topic="t",
            kafka_key="k",
            archived_at=Now() - timedelta(days=number),
        )
    shown = run("prune", "--older-than", "36h")
    assert shown == "2 pruned\n3 pruned\n"
    assert ArchivedRecord.objects.count() == 2


def test_prune_of_processed_keys_leaves_the_archive() -> None:
    long_ago = Now() - timedelta(days=2)
    ArchivedRecord.objects.create(
        id=1, kafka_topic="t", kafka_key="k", archived_at=long_ago
    )
    for number, moment in enumerate([long_ago, Now()]):
        ProcessedMessage.objects.create(
            consumer="c", key=str(number), processed_at=moment
        )
    assert run("prune", "--older-than", "36h", "--processed") == "1 pruned\n"
    assert [row.key for row in ProcessedMessage.objects.all()] == ["1"]
    assert ArchivedRecord.objects.count() == 1


@pytest.mark.parametrize("age", ["", "7", "7w", "-1d", "1.5h", "d"])
def test_prune_refuses_another_age(age: str) -> None:
    with pytest.raises(CommandError, match="must look like 90d"):
        run("prune", f"--older-than={age}")


def test_grants_can_be_run_as_they_are() -> None:
    statements = run(
        *("grants", "--app", 'a"b', "--harvester", "H h", "--operator", "o")
    )
    with connection.cursor() as cursor:
        for role in ('"a""b"', '"H h"', "o"):
            cursor.execute(f"CREATE ROLE {role}")
        for statement in statements.splitlines():
            cursor.execute(statement)
        cursor.execute("SELECT has_table_privilege('H h', 'outbox', 'DELETE')")
        assert cursor.fetchone() == (True,)
        cursor.execute("SELECT has_any_column_privilege('a\"b', 'outbox', 'SELECT')")
        assert cursor.fetchone() == (False,)


def test_grants_needs_a_role() -> None:
    with pytest.raises(CommandError, match="Name a role"):
        run("grants")


@pytest.mark.django_db(databases=["default", "other"])
def test_another_database_can_be_meant() -> None:
    OutboxRecord.objects.using("other").create(kafka_topic="t", kafka_key="k")
    assert "waiting  1" in run("status", "--database", "other")
    assert "waiting  0" in run("status")


def test_an_unknown_database_is_one_line() -> None:
    with pytest.raises(CommandError, match="There is no database 'nowhere'"):
        run("status", "--database", "nowhere")


def test_a_table_that_is_missing_is_one_line() -> None:
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE outbox_archive")
    with pytest.raises(CommandError, match="'default' refused: relation") as caught:
        run("prune", "--older-than", "1d")
    assert "\n" not in str(caught.value)


def test_a_group_reads_the_topics_that_are_named_from_their_beginning() -> None:
    offsets = ConsumerOffset.objects.all()
    for topic, partition in (("orders", 0), ("orders", 1), ("payments", 0)):
        offsets.advance("billing", topic, partition, 6, topic_id="one")
    offsets.advance("search", "orders", 0, 6)
    assert run("rewind", "billing", "orders") == (
        "billing reads orders from its beginning: 2 partitions\n"
    )
    assert offsets.positions("billing") == {
        ("orders", 0): (0, ""),
        ("orders", 1): (0, ""),
        ("payments", 0): (7, "one"),
    }
    assert offsets.positions("search") == {("orders", 0): (7, "")}


def test_a_group_or_topic_that_has_no_offsets_is_named() -> None:
    ConsumerOffset.objects.all().advance("billing", "orders", 0, 6)
    with pytest.raises(
        CommandError, match=r"no stored offset of order; it has .*orders"
    ):
        run("rewind", "billing", "orders", "order")
    with pytest.raises(CommandError, match="groups with offsets: billing"):
        run("rewind", "biling", "orders")
    assert ConsumerOffset.objects.get().next_offset == 7
