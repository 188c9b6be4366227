"""`stash_unique()`: one message for each unique key, however often it is called."""

from __future__ import annotations

import re
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction

from django_outbox import InvalidKey, InvalidMessage, Message, NotInTransaction
from django_outbox.contrib.unique_messages import astash_unique, stash_unique
from django_outbox.models import OutboxRecord, ProcessedMessage

from ..waiting import eventually

PAGE = (Path(__file__).parents[2] / "docs/howto/unique-messages.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)

PLACED = Message("orders", key="17", value={"status": "placed"}, headers={"v": "1"})


def stashed(unique_key: str | uuid.UUID = "17/placed", **options: Any) -> uuid.UUID:
    with transaction.atomic():
        return stash_unique(PLACED, unique_key=unique_key, **options)


def blocked(observer: psycopg.Connection) -> bool:
    waiting = "SELECT FROM pg_stat_activity WHERE pg_blocking_pids(pid) <> '{}'"
    return observer.execute(waiting).rowcount > 0


@pytest.mark.django_db
def test_a_repeat_writes_nothing_and_returns_the_first_id() -> None:
    first = stashed()
    OutboxRecord.objects.filter(message_id=first).update(attempts=3)
    assert stashed() == first
    (row,) = OutboxRecord.objects.all()
    assert (row.message_id, row.attempts) == (first, 3)
    assert (row.kafka_topic, row.kafka_key) == ("orders", "17")
    assert row.kafka_value == '{"status":"placed"}'
    assert (row.kafka_header_keys, row.kafka_header_values) == (["v"], ["1"])


@pytest.mark.django_db
def test_a_repeat_writes_nothing_when_the_first_was_sent_already() -> None:
    first = stashed()
    OutboxRecord.objects.all().delete()
    assert stashed() == first
    assert not OutboxRecord.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (Message(5, key="17", value="x"), "topic: must be str, not int"),  # type: ignore[arg-type]
        (Message("x" * 250, key="17", value="x"), "topic: .* is not a valid topic"),
        ("orders", "message: must be a Message, not str"),
    ],
)
def test_what_is_no_message_is_refused(wrong: Any, why: str) -> None:
    with pytest.raises(InvalidMessage, match=why), transaction.atomic():
        stash_unique(wrong, unique_key="17/placed")


@pytest.mark.django_db
def test_keys_are_apart_by_topic_and_by_consumer() -> None:
    assert stashed("17") != stashed("18")
    with transaction.atomic():
        other = Message("invoices", key="17", value=None)
        assert stash_unique(other, unique_key="17") != stashed("17")
    assert OutboxRecord.objects.count() == 3
    names = ProcessedMessage.objects.values_list("consumer", flat=True).distinct()
    assert set(names) == {"stash:orders", "stash:invoices"}


@pytest.mark.django_db
def test_a_rolled_back_message_can_be_written_again() -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        stash_unique(PLACED, unique_key="17/placed")
        raise ZeroDivisionError
    with transaction.atomic():
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            stash_unique(PLACED, unique_key="17/placed")
            raise ZeroDivisionError
        stash_unique(PLACED, unique_key="17/placed")
    assert OutboxRecord.objects.count() == 1


@pytest.mark.django_db
def test_an_invalid_message_does_not_use_up_its_key() -> None:
    with transaction.atomic():
        with pytest.raises(InvalidMessage, match=r"^key: "):
            stash_unique(
                Message("orders", key="1" * 256, value=1), unique_key="17/placed"
            )
        stash_unique(PLACED, unique_key="17/placed")
    assert OutboxRecord.objects.count() == 1


@pytest.mark.django_db
@pytest.mark.parametrize("unique_key", ["", "a" * 513, "a\nb", None, 17])
def test_an_unusable_key_is_refused(unique_key: Any) -> None:
    with pytest.raises(InvalidKey):
        stashed(unique_key)
    assert not OutboxRecord.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_outside_of_a_transaction_nothing_is_written() -> None:
    with pytest.raises(NotInTransaction, match=r"stash_unique\(\)"):
        stash_unique(PLACED, unique_key="17/placed")
    assert not OutboxRecord.objects.exists()
    assert not ProcessedMessage.objects.exists()


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_claim_and_message_are_in_the_named_database() -> None:
    with transaction.atomic("other"):
        stash_unique(PLACED, unique_key="17/placed", using="other")
    assert OutboxRecord.objects.using("other").count() == 1
    assert ProcessedMessage.objects.using("other").count() == 1
    assert not ProcessedMessage.objects.exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("commits", [True, False])
def test_of_two_transactions_at_once_one_writes(
    commits: bool, postgres: psycopg.Connection
) -> None:
    def second() -> uuid.UUID:
        try:
            return stashed()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            first = stash_unique(PLACED, unique_key="17/placed")
            waiting = pool.submit(second)
            eventually(lambda: blocked(postgres), what="the second transaction waits")
            transaction.set_rollback(not commits)
        assert (waiting.result() == first) is commits
    assert OutboxRecord.objects.count() == 1


@pytest.mark.django_db
def test_the_page_does_what_it_says() -> None:
    names: dict[str, Any] = {"customer": "17", "month": "2026-11"}
    for number, block in enumerate(BLOCKS):
        code = compile(block, f"block {number} of unique-messages.md", "exec")
        exec(code, names)  # noqa: S102
    keys = OutboxRecord.objects.order_by("id").values_list("kafka_key", flat=True)
    assert list(keys) == ["17"]


@pytest.mark.django_db(transaction=True)
def test_the_async_twin_joins_the_transaction_of_its_thread() -> None:
    with transaction.atomic():
        first = async_to_sync(astash_unique)(PLACED, unique_key="17")
    assert stashed("17") == first
    assert OutboxRecord.objects.count() == 1
