"""`manage.py outbox pause` and `resume`, and what a harvester reads of them."""

from __future__ import annotations

import json
import logging
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError
from django.db import IntegrityError, transaction

from django_outbox.message.pauses import NOTHING_PAUSED, Pauses
from django_outbox.models import Pause
from django_outbox.operations import pausing
from django_outbox.operations.live_reading import read
from django_outbox.postgres.connection import Connection, Database
from django_outbox.postgres.unmarked_table import UnmarkedOutbox

from .outbox_command import run

SECRET = "customer-17"


def found() -> list[tuple[str, str | None]]:
    return list(Pause.objects.values_list("kafka_topic", "kafka_key"))


@pytest.mark.django_db
def test_a_pause_stays_until_it_is_ended() -> None:
    said = run("pause", "orders", "--reason", "consumer release")
    assert said.startswith("orders is paused: the leader stops within about a second")
    assert run("pause", "orders") == "orders was paused already\n"
    run("pause", "orders", "--key", SECRET)
    run("pause", "orders", "--key", "")
    run("pause", "--all")
    assert found() == [("orders", None), ("orders", SECRET), ("orders", ""), ("", None)]

    status = run("status").splitlines()
    assert "paused   orders, since 0 ms: consumer release" in [
        line.replace(line.split("since ")[1].split(":")[0], "0 ms")
        for line in status
        if line.startswith("paused   orders, since")
    ]
    assert f"key {SECRET} of orders" in "\n".join(status)
    assert run("resume", "orders").startswith("1 pause ended\npaused   key")
    assert found() == [("orders", SECRET), ("orders", ""), ("", None)]
    assert run("resume", "orders", "--key", "").startswith("1 pause ended\n")
    assert run("resume", "--all") == "2 pauses ended\n"
    assert found() == []


@pytest.mark.django_db
def test_json_has_every_pause_and_what_changed() -> None:
    shown = json.loads(run("pause", "orders", "--json"))
    assert shown["changed"] == 1
    (row,) = shown["pauses"]
    assert (row["kafka_topic"], row["kafka_key"], row["reason"]) == ("orders", None, "")
    assert json.loads(run("pause", "orders", "--json"))["changed"] == 0
    assert json.loads(run("status", "--json"))["paused"] == shown["pauses"]
    assert json.loads(run("resume", "--all", "--json")) == {
        "database": "default",
        "changed": 1,
        "pauses": [],
    }


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["pause"], "Give a topic, or --all."),
        (["resume"], "Give a topic, or --all."),
        (["pause", "orders", "--all"], "Give a topic, or --all."),
        (["pause", "--all", "--key", "1"], "A key belongs to a topic"),
        (["pause", "no topic"], "'no topic' is not a valid topic name"),
        (["pause", "orders", "--key", "k" * 256], "256 characters; at most 255"),
        (["resume", "--all"], "Nothing is not paused. There is no pause."),
        (["resume", "orders"], "orders is not paused. There is no pause."),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: list[str], error: str) -> None:
    with pytest.raises(CommandError) as refused:
        run(*arguments)
    assert error in str(refused.value)
    assert found() == []


@pytest.mark.django_db
def test_a_wrong_name_says_what_is_paused() -> None:
    run("pause", "orders", "--key", "17")
    with pytest.raises(CommandError, match="These are: key 17 of orders"):
        run("resume", "orders")


@pytest.mark.django_db
def test_a_log_and_a_reading_name_no_key(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    pausing.pause("default", "orders", SECRET, reason="why")
    pausing.resume("default", "orders", SECRET)
    pausing.pause("default", "orders", SECRET, reason="why")
    assert [record.getMessage() for record in caplog.records] == [
        "Paused one key of orders by hand",
        "Resumed one key of orders by hand",
        "Paused one key of orders by hand",
    ]
    (row,) = read("default")["paused"]
    assert (row["what"], row["reason"]) == ("one key of orders", "why")
    (row,) = read("default", with_keys=True)["paused"]
    assert row["what"] == f"key {SECRET} of orders"


@pytest.mark.django_db
@pytest.mark.parametrize("row", [("orders", None), ("orders", "k"), ("", None)])
def test_plain_sql_makes_no_pause_twice(row: tuple[str, str | None]) -> None:
    topic, key = row
    Pause.objects.create(kafka_topic=topic, kafka_key=key)
    with pytest.raises(IntegrityError), transaction.atomic():
        Pause.objects.create(kafka_topic=topic, kafka_key=key)
    with pytest.raises(IntegrityError, match="key_of_a_topic"), transaction.atomic():
        Pause.objects.create(kafka_topic="", kafka_key="k")


# What a harvester reads.


@pytest.mark.django_db(transaction=True)
def test_a_harvester_reads_what_the_verbs_wrote(database_url: str) -> None:
    outbox = UnmarkedOutbox(Database({"conninfo": database_url}))
    assert outbox.pauses() == NOTHING_PAUSED
    run("pause", "orders")
    assert outbox.pauses() == Pauses.of([("orders", None)])
    run("resume", "orders")
    assert outbox.pauses() == NOTHING_PAUSED
    outbox.close()


@pytest.mark.django_db(transaction=True)
def test_a_table_without_pauses_holds_nothing(
    database_url: str, postgres: psycopg.Connection
) -> None:
    """Goharvest's has none, and neither has ours before the migration."""
    postgres.execute("CREATE TABLE plain (LIKE outbox INCLUDING ALL)")
    outbox = UnmarkedOutbox(Database({"conninfo": database_url}), table="plain")
    try:
        assert outbox.pauses() == NOTHING_PAUSED
        # The migration comes while the harvester runs, and goes.
        postgres.execute("CREATE TABLE plain_pauses (LIKE outbox_pauses INCLUDING ALL)")
        postgres.execute(
            "INSERT INTO plain_pauses (id, kafka_topic) VALUES (1, 'orders')"
        )
        assert outbox.pauses() == Pauses.of([("orders", None)])
        postgres.execute("DROP TABLE plain_pauses")
        assert outbox.pauses() == NOTHING_PAUSED
    finally:
        outbox.close()
        postgres.execute("DROP TABLE IF EXISTS plain_pauses, plain")


@pytest.mark.django_db(transaction=True)
def test_a_role_that_may_not_read_pauses_says_so_once(
    database_url: str,
    postgres: psycopg.Connection,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The grants of the former release do not have this table."""
    postgres.execute("CREATE ROLE former")
    conninfo = {"conninfo": database_url, "options": "-c role=former"}
    outbox = UnmarkedOutbox(Database(conninfo))
    try:
        run("pause", "orders")
        assert outbox.pauses() == NOTHING_PAUSED
        assert outbox.pauses() == NOTHING_PAUSED
        (warning,) = [r for r in caplog.records if r.levelno == logging.WARNING]
        assert "may not read" in warning.getMessage()
        assert "outbox_pauses" in warning.getMessage()
        postgres.execute("GRANT SELECT ON outbox_pauses TO former")
        assert outbox.pauses() == Pauses.of([("orders", None)])
        postgres.execute("REVOKE SELECT ON outbox_pauses FROM former")
        assert outbox.pauses() == NOTHING_PAUSED
        assert outbox.pauses() == NOTHING_PAUSED
    finally:
        outbox.close()
        postgres.execute("DROP OWNED BY former")
        postgres.execute("DROP ROLE former")


@pytest.mark.django_db(transaction=True)
def test_a_look_is_one_statement(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader that has nothing to do looks once a second."""
    outbox = UnmarkedOutbox(Database({"conninfo": database_url}))
    outbox.pauses()
    statements: list[object] = []
    execute = Connection.execute

    def count(self: Connection, query: Any, *arguments: Any, **options: Any) -> Any:
        statements.append(query)
        return execute(self, query, *arguments, **options)

    monkeypatch.setattr(Connection, "execute", count)
    try:
        outbox.pauses()
    finally:
        outbox.close()
    assert len(statements) == 1
