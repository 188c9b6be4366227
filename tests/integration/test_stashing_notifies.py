"""`stash()` with NOTIFY on a real PostgreSQL: one notification for each commit."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import psycopg
import pytest
from asgiref.sync import sync_to_async
from django.db import connection, connections, transaction
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from django_outbox import (
    Message,
    astash,
    open_series,
    release_series,
    stash,
    stash_delayed,
    stash_many,
)
from django_outbox.operations.grants import grants
from django_outbox.stashing.writing import MIN_COPY_ROWS

from .harvesting import PATIENCE

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def notifying(settings: Settings) -> None:
    settings.DJANGO_OUTBOX = {**settings.DJANGO_OUTBOX, "NOTIFY": True}


class Ear:
    """A connection that listens to the outbox, as anybody's might."""

    def __init__(self, postgres: psycopg.Connection) -> None:
        self._postgres = postgres
        postgres.execute("LISTEN outbox")

    def heard(self) -> int:
        """How many notifications there were until now: they come in order."""
        self._postgres.execute("SELECT pg_notify('outbox', 'now')")
        for count, told in enumerate(self._postgres.notifies(timeout=PATIENCE)):
            if told.payload == "now":
                return count
            assert (told.channel, told.payload) == ("outbox", "")
        raise AssertionError("its own notification does not come")


@pytest.fixture
def ear(postgres: psycopg.Connection) -> Ear:
    return Ear(postgres)


def many(count: int) -> list[Message]:
    return [Message("orders", key=str(number), value=None) for number in range(count)]


@pytest.mark.usefixtures("notifying")
def test_each_transaction_that_stashes_tells_once(ear: Ear) -> None:
    for _ in range(2):
        with transaction.atomic():
            stash("orders", key="1", value=None)
            with transaction.atomic():
                stash("orders", key="2", value=None)
            stash_many(many(3))

    assert ear.heard() == 2


@pytest.mark.usefixtures("notifying")
@pytest.mark.parametrize("count", [1, MIN_COPY_ROWS - 1, MIN_COPY_ROWS, 1003])
def test_many_messages_tell_once_however_they_are_written(ear: Ear, count: int) -> None:
    with transaction.atomic():
        assert len(stash_many(many(count))) == count

    assert ear.heard() == 1


@pytest.mark.usefixtures("notifying")
def test_nothing_is_told_before_the_commit(ear: Ear) -> None:
    with transaction.atomic():
        stash("orders", key="1", value=None)
        stash_many(many(MIN_COPY_ROWS))
        assert ear.heard() == 0


@pytest.mark.usefixtures("notifying")
def test_a_rollback_tells_nothing(ear: Ear) -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        stash("orders", key="1", value=None)
        stash_many(many(MIN_COPY_ROWS))
        raise ZeroDivisionError
    with transaction.atomic(), pytest.raises(ZeroDivisionError), transaction.atomic():
        stash("orders", key="1", value=None)
        raise ZeroDivisionError

    assert ear.heard() == 0


@pytest.mark.usefixtures("notifying")
def test_from_async_code_it_is_told_too(ear: Ear) -> None:
    async def write() -> None:
        block = transaction.atomic()
        await sync_to_async(block.__enter__)()
        await astash("orders", key="1", value=None)
        await sync_to_async(block.__exit__)(None, None, None)
        await sync_to_async(connections.close_all)()

    asyncio.run(write())

    assert ear.heard() == 1


@pytest.mark.usefixtures("notifying")
def test_what_is_staged_tells_nothing(ear: Ear) -> None:
    with transaction.atomic():
        stash_delayed("orders", key="1", value=None, not_before=timedelta(hours=1))
        open_series("s").stash("orders", key="1", value=None)

    assert ear.heard() == 0


@pytest.mark.usefixtures("notifying")
def test_a_released_series_tells_once(ear: Ear) -> None:
    with transaction.atomic():
        open_series("by hand").stash_many(many(3))
    with transaction.atomic():
        release_series("by hand")
    assert ear.heard() == 1

    with transaction.atomic():
        open_series("complete", expected=3).stash_many(many(3))
    assert ear.heard() == 1


@pytest.mark.usefixtures("notifying")
def test_an_empty_series_tells_nothing(ear: Ear) -> None:
    with transaction.atomic():
        open_series("empty")
        release_series("empty")

    assert ear.heard() == 0


def test_without_the_setting_nothing_is_told(ear: Ear) -> None:
    with transaction.atomic(), CaptureQueriesContext(connection) as statements:
        stash("orders", key="1", value=None)
        stash_many(many(2))
        stash_many(many(MIN_COPY_ROWS))
        open_series("s", expected=1).stash("orders", key="1", value=None)

    assert ear.heard() == 0
    assert len(statements) == 7
    assert not any("notify" in statement["sql"] for statement in statements)


@pytest.mark.usefixtures("notifying")
def test_only_a_copy_takes_one_more_statement() -> None:
    with transaction.atomic(), CaptureQueriesContext(connection) as statements:
        stash("orders", key="1", value=None)
        stash_many(many(2))
    assert len(statements) == 2

    with transaction.atomic(), CaptureQueriesContext(connection) as statements:
        stash_many(many(MIN_COPY_ROWS))
    assert len(statements) == 2


@pytest.mark.usefixtures("notifying")
def test_it_takes_no_privilege_more() -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute('CREATE ROLE "told_app"')
        for statement in grants("outbox", app="told_app"):
            cursor.execute(statement)
        cursor.execute('SET LOCAL ROLE "told_app"')
        stash("orders", key="1", value=None)
        stash_many(many(MIN_COPY_ROWS))
        open_series("s", expected=1).stash("orders", key="1", value=None)
        transaction.set_rollback(True)
