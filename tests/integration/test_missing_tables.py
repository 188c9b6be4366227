"""A table that is missing: the error names the database and the cure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta

import pytest
from asgiref.sync import sync_to_async
from django.core.management import CommandError, call_command
from django.db import ProgrammingError, connection, connections, transaction

from django_outbox import (
    Message,
    TableMissing,
    discard_series,
    once,
    open_series,
    release_series,
    stash,
    stash_delayed,
    stash_many,
)
from django_outbox.consuming.effects import TransactionalHandler
from django_outbox.consuming.handlers import Group
from django_outbox.consuming.outages import is_service_unavailable
from django_outbox.message.incoming import (
    ConsumedMessage,
    PartitionState,
    TopicPartition,
)
from tests.testapp.models import Order

TABLES = (
    *("outbox", "outbox_staged", "outbox_series", "outbox_parked", "outbox_archive"),
    *("outbox_processed", "outbox_offsets", "outbox_identity"),
)
CURE = (
    r'In the database \'default\': relation "outbox\w*" does not exist\. Run '
    r"`manage.py migrate --database=default`"
)


@pytest.fixture
def _unmigrated() -> Iterator[None]:
    """Hide all tables; outside of any transaction, so that a block can roll back."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE SCHEMA hidden")
        for table in TABLES:
            cursor.execute(f"ALTER TABLE {table} SET SCHEMA hidden")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            for table in TABLES:
                cursor.execute(f"ALTER TABLE hidden.{table} SET SCHEMA public")
            cursor.execute("DROP SCHEMA hidden")


def _messages(count: int) -> list[Message]:
    return [Message("t", key="k", value=1)] * count


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_unmigrated")
@pytest.mark.parametrize(
    "call",
    [
        lambda: stash("t", key="k", value=1),
        lambda: stash("t", key="k", value=1, ordered=True),
        lambda: stash_delayed("t", key="k", value=1, not_before=timedelta(hours=1)),
        lambda: stash_many(_messages(2)),
        lambda: stash_many(_messages(20)),
        lambda: stash_many(_messages(12_000)),
        lambda: open_series("s"),
        lambda: release_series("s"),
        lambda: discard_series("s"),
    ],
)
def test_writing_says_to_migrate_and_the_transaction_rolls_back(
    call: Callable[[], object],
) -> None:
    with pytest.raises(TableMissing, match=CURE) as caught, transaction.atomic():
        Order.objects.create(number="1")
        call()
    assert isinstance(caught.value.__cause__, ProgrammingError)
    assert not Order.objects.exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_unmigrated")
def test_a_savepoint_keeps_the_transaction_usable() -> None:
    with transaction.atomic():
        with pytest.raises(TableMissing), transaction.atomic():
            stash("t", key="k", value=1)
        Order.objects.create(number="1")
    assert Order.objects.count() == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_unmigrated")
def test_once_says_to_migrate() -> None:
    with (
        pytest.raises(TableMissing, match=CURE),
        once(key="1", consumer="c") as run,
    ):
        assert run.is_first
    assert not connection.in_atomic_block


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_unmigrated")
def test_once_in_async_code_says_to_migrate() -> None:
    async def work() -> None:
        try:
            async with once(key="1", consumer="c") as run:
                assert run.is_first
        finally:
            await sync_to_async(connections.close_all)()

    with pytest.raises(TableMissing, match=CURE):
        asyncio.run(work())


class _NoPartitions:
    """A cluster that knows no partition."""

    def look(
        self, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, PartitionState]:
        return {}


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_unmigrated")
@pytest.mark.parametrize("keeps_offsets", [False, True])
def test_no_message_of_a_consumer_is_at_fault(keeps_offsets: bool) -> None:
    """It waits for the table: else each message would be a dead letter."""
    group = Group(name="g", subscriptions=())
    effects = TransactionalHandler(
        group,
        alias="default",
        keeps_offsets=keeps_offsets,
        partitions=_NoPartitions(),
        idle_timeout=0.0,
    )
    calls: list[Callable[[], object]] = [effects.ping]
    if keeps_offsets:
        calls += [
            lambda: effects.start_offsets([("t", 0)]),
            lambda: effects.rewind({("t", 0): 0}),
            lambda: effects.skip(_message()),
        ]
    for call in calls:
        with pytest.raises(TableMissing, match=CURE) as caught:
            call()
        assert is_service_unavailable(caught.value)


def _message() -> ConsumedMessage:
    return ConsumedMessage(
        topic="t", partition=0, offset=0, key=b"k", value=b"v", headers=()
    )


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_unmigrated")
@pytest.mark.parametrize(
    "arguments",
    [
        ["status"],
        ["release", "--all"],
        ["series", "list"],
        ["cluster", "init"],
        ["cluster", "init", "--check"],
        ["identity", "--new"],
        ["series", "release", "s"],
        ["prune", "--older-than", "1d", "--yes"],
        ["prune", "--older-than", "1d", "--processed", "--yes"],
    ],
)
def test_the_command_says_to_migrate(arguments: list[str]) -> None:
    with pytest.raises(CommandError, match=CURE) as caught:
        call_command("outbox", *arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.django_db(transaction=True)
def test_a_missing_table_of_the_application_is_its_own_business() -> None:
    """Also while `stash_many()` asks it for messages, and with a name like ours."""

    def messages() -> Iterator[Message]:
        # So many that the first of them have been written.
        yield from _messages(11_000)
        with connection.cursor() as cursor:
            cursor.execute("SELECT * FROM my_outbox")

    with pytest.raises(ProgrammingError, match="my_outbox"), transaction.atomic():
        stash_many(messages())


@pytest.mark.django_db(transaction=True)
def test_a_table_of_another_version_says_to_migrate() -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE outbox RENAME kafka_partition TO other")
    try:
        with (
            pytest.raises(TableMissing, match='"kafka_partition" of relation "outbox"'),
            transaction.atomic(),
        ):
            stash("t", key="k", value=1)
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE outbox RENAME other TO kafka_partition")
