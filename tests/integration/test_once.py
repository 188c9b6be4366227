"""`once()` on a real database: repeats, rollbacks, races, async."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from threading import Barrier, Event
from typing import Any

import psycopg
import pytest
from asgiref.sync import ThreadSensitiveContext, async_to_sync, sync_to_async
from django.db import (
    DatabaseError,
    IntegrityError,
    InterfaceError,
    InternalError,
    OperationalError,
    connection,
    connections,
    transaction,
)
from django.db.models.functions import Now
from django.db.utils import ConnectionHandler
from pytest_django import Settings

from django_outbox import ConsumedMessage, InvalidKey, once
from django_outbox.consuming import outages
from django_outbox.consuming.outages import is_service_unavailable
from django_outbox.exceptions import (
    AlreadyOpen,
    ConsumingError,
    ErrorSwallowed,
    RepeatUnnoticed,
)
from django_outbox.models import ProcessedMessage
from django_outbox.operations import pruning
from tests.testapp.models import Effect
from tests.unit.samples import READING

from .transactions import wait_until_blocked

MESSAGE = ConsumedMessage(
    topic="orders", headers=(("outbox-message-id", str(uuid.uuid4()).encode()),)
)


def do(key: ConsumedMessage | str = MESSAGE, *, consumer: str = "billing") -> Any:
    """Have an effect, once; return the stored answer."""
    with once(key, consumer=consumer) as run:
        if run.is_first:
            Effect.objects.create(text="done")
            run.respond({"effects": Effect.objects.count()})
    return run.response


@pytest.mark.django_db
def test_a_repeat_has_no_effect_and_the_same_answer() -> None:
    assert do() == {"effects": 1}
    assert do() == {"effects": 1}
    assert Effect.objects.count() == 1
    (row,) = ProcessedMessage.objects.all()
    assert (row.consumer, row.key) == ("billing", MESSAGE.message_id)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("caught", ["by the ORM", "by a cursor", "a rollback"])
def test_an_error_of_the_database_that_is_caught_is_told(caught: str) -> None:
    """Its transaction would roll back without a word, and the claim with it."""
    with (
        pytest.raises(ErrorSwallowed, match="atomic"),
        once(MESSAGE, consumer="billing") as run,
    ):
        assert run.is_first
        Effect.objects.create(text="lost")
        if caught == "by the ORM":
            with suppress(IntegrityError):
                Effect.objects.create(text=None)
        elif caught == "by a cursor":
            with suppress(DatabaseError), connection.cursor() as cursor:
                cursor.execute("SELECT 1 / 0")
        else:
            transaction.set_rollback(True)
    assert not ProcessedMessage.objects.exists()
    assert not Effect.objects.exists()
    do()
    assert Effect.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_an_error_that_is_caught_around_an_atomic_of_its_own_is_harmless() -> None:
    with once(MESSAGE, consumer="billing") as run:
        assert run.is_first
        with suppress(IntegrityError), transaction.atomic():
            Effect.objects.create(text=None)
        Effect.objects.create(text="done")
    assert Effect.objects.count() == 1


@pytest.mark.django_db
def test_each_consumer_has_keys_of_its_own() -> None:
    do()
    do(consumer="search")
    assert Effect.objects.count() == 2


@pytest.mark.django_db(transaction=True)
def test_what_fails_is_not_done_and_may_be_tried_again() -> None:
    with pytest.raises(LookupError), once(MESSAGE, consumer="billing") as run:
        assert run.is_first
        Effect.objects.create(text="lost")
        raise LookupError
    assert not ProcessedMessage.objects.exists()
    do()
    assert [effect.text for effect in Effect.objects.all()] == ["done"]


@pytest.mark.django_db(transaction=True)
def test_a_repeat_waits_for_the_first_to_end() -> None:
    """The second sees whether the first has committed."""
    is_open, may_end = Event(), Event()

    def first() -> None:
        with once(MESSAGE, consumer="billing") as run:
            assert run.is_first
            Effect.objects.create(text="done")
            is_open.set()
            assert may_end.wait(10)
            run.respond("first")

    def second() -> Any:
        assert is_open.wait(10)
        with once(MESSAGE, consumer="billing") as run:
            return run.is_first, run.response

    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(_closing(job)) for job in (first, second)]
        assert is_open.wait(10)
        wait_until_blocked()
        may_end.set()
        assert jobs[1].result(10) == (False, "first")
    assert Effect.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_many_at_once_do_it_once() -> None:
    start = Barrier(4)

    def attempt() -> Any:
        start.wait(10)
        return do()

    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(_closing(attempt)) for _ in range(4)]
        assert [job.result(10) for job in jobs] == [{"effects": 1}] * 4
    assert Effect.objects.count() == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("is_repeat", [False, True])
def test_a_block_that_does_not_ask_is_rolled_back(is_repeat: bool) -> None:
    """The first time already, so that the mistake shows in the first test."""
    if is_repeat:
        do()
    with pytest.raises(RepeatUnnoticed), once(MESSAGE, consumer="billing"):
        Effect.objects.create(text="unasked")
    assert not Effect.objects.filter(text="unasked").exists()
    assert ProcessedMessage.objects.exists() == is_repeat


@pytest.mark.django_db
def test_the_same_again_inside_is_refused() -> None:
    """The inner one would take itself for a repeat, and do nothing."""
    with once(MESSAGE, consumer="billing") as run:
        assert run.is_first
        with pytest.raises(AlreadyOpen), once(MESSAGE, consumer="billing"):
            pass
        do(consumer="search")
    assert Effect.objects.count() == 1


@pytest.mark.django_db
def test_a_repeat_cannot_change_the_answer() -> None:
    do()
    with once(MESSAGE, consumer="billing") as run:
        assert not run.is_first
        with pytest.raises(ConsumingError, match="A repeat cannot respond"):
            run.respond("other")


@pytest.mark.django_db
def test_a_decorated_function_runs_once() -> None:
    @once(consumer="billing")
    def handle(message: ConsumedMessage) -> dict[str, Any]:
        Effect.objects.create(text=message.topic)
        return {"tuple": (1, 2)}

    assert handle(MESSAGE) == {"tuple": (1, 2)}
    assert handle(MESSAGE) == {"tuple": [1, 2]}
    assert Effect.objects.count() == 1
    assert handle.__name__ == "handle"


@pytest.mark.django_db
def test_an_argument_may_have_any_name() -> None:
    @once(consumer="billing")
    def charge(message: str, source: str) -> None:
        Effect.objects.create(text=source)

    charge("1", source="web")
    charge("2", source="web")
    with pytest.raises(InvalidKey, match="first positional argument"):
        charge(message="3", source="web")
    assert Effect.objects.count() == ProcessedMessage.objects.count() == 2


@pytest.mark.django_db
def test_the_key_may_come_from_the_arguments() -> None:
    def number(order: dict[str, str], *, again: bool) -> str:
        return order["number"]

    @once(consumer="billing", key=number)
    def charge(order: dict[str, str], *, again: bool) -> None:
        Effect.objects.create(text="charged")

    charge({"number": "7"}, again=False)
    charge({"number": "7"}, again=True)
    charge({"number": "8"}, again=False)
    assert Effect.objects.count() == 2
    with once(key="7", consumer="billing") as run:
        assert not run.is_first


@pytest.mark.parametrize("key", [None, 7, b"k"])
def test_what_is_no_text_is_no_key(key: Any) -> None:
    """Every message without a key would be a repeat of the first one."""

    @once(consumer="billing", key=lambda _: key)
    def handle(message: str) -> None:
        raise AssertionError("it has no key")

    with pytest.raises(InvalidKey, match=rf"not {type(key).__name__}"):
        handle("message")


@pytest.mark.parametrize("key", ["", "x" * 513, "a\0b", "\ud800", "a\nb"])
def test_what_can_be_no_key_is_refused(key: str) -> None:
    with pytest.raises(InvalidKey, match="1 to 512 bytes"):
        once(key, consumer="billing")


def test_an_argument_that_is_no_key_is_named() -> None:
    @once(consumer="billing")
    def handle(order: object) -> None:
        """Never called."""

    with pytest.raises(InvalidKey, match="dict is neither"):
        handle({})


@pytest.mark.django_db(transaction=True)
def test_coroutines_do_it_once_each_in_its_own_transaction() -> None:
    @once(consumer="billing")
    async def handle(key: str) -> str:
        await Effect.objects.acreate(text=key)
        await asyncio.sleep(0)  # the subject: others run between effect and commit
        if key == "bad":
            raise LookupError
        return key.upper()

    async def all_at_once() -> list[Any]:
        keys = ["a", "bad", "b", "a", "bad", "b"]
        return await asyncio.gather(*map(handle, keys), return_exceptions=True)

    answers = asyncio.run(all_at_once())
    assert [a for a in answers if isinstance(a, str)] == ["A", "B", "A", "B"]
    assert sum(isinstance(a, LookupError) for a in answers) == 2
    assert sorted(effect.text for effect in Effect.objects.all()) == ["a", "b"]


@pytest.mark.django_db(transaction=True)
def test_blocks_of_one_request_have_transactions_of_their_own() -> None:
    """Under ASGI a request has a context of its own, for one thread."""
    is_inside = asyncio.Event()

    async def fails() -> None:
        async with once("a", consumer="billing") as run:
            assert run.is_first
            is_inside.set()
            await Effect.objects.acreate(text="lost")
            raise LookupError

    async def works() -> None:
        await is_inside.wait()
        async with once("b", consumer="billing") as run:
            assert run.is_first
            await Effect.objects.acreate(text="kept")

    async def request() -> None:
        async with ThreadSensitiveContext():
            await asyncio.gather(fails(), works(), return_exceptions=True)
            await sync_to_async(connections.close_all)()

    asyncio.run(request())
    assert [effect.text for effect in Effect.objects.all()] == ["kept"]
    assert [row.key for row in ProcessedMessage.objects.all()] == ["b"]


@pytest.mark.django_db(transaction=True)
def test_tasks_that_share_a_connection_come_one_after_the_other() -> None:
    """Below `async_to_sync()` one of them would end in another one's transaction."""

    @once(consumer="billing")
    async def handle(key: str) -> str:
        await Effect.objects.acreate(text=key)
        await asyncio.sleep(0)
        if key == "bad":
            raise LookupError
        return key.upper()

    async def at_once(*keys: str) -> list[Any]:
        return await asyncio.gather(*map(handle, keys), return_exceptions=True)

    async def in_turn(*keys: str) -> list[Any]:
        answers = [await at_once(key) for key in keys]
        return [answer for (answer,) in answers]

    first, *others = async_to_sync(at_once)("a", "b", "a", "bad")
    assert first == "A"
    assert [type(error) for error in others] == [AlreadyOpen] * 3
    assert "Await them one after the other" in str(others[0])
    assert [effect.text for effect in Effect.objects.all()] == ["a"]

    *answers, error = async_to_sync(in_turn)("a", "b", "a", "bad")
    assert answers == ["A", "B", "A"]
    assert isinstance(error, LookupError)
    assert sorted(effect.text for effect in Effect.objects.all()) == ["a", "b"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("error", [None, LookupError()])
def test_a_block_that_ends_before_one_within_it_is_rolled_back(
    error: Exception | None,
) -> None:
    async def both() -> None:
        is_open, may_end = asyncio.Event(), asyncio.Event()

        async def inner() -> None:
            async with once("b", consumer="billing") as run:
                assert run.is_first
                is_open.set()
                await may_end.wait()

        with pytest.raises(type(error) if error else AlreadyOpen):
            async with once("a", consumer="billing") as run:
                assert run.is_first
                await Effect.objects.acreate(text="a")
                task = asyncio.create_task(inner())
                await is_open.wait()
                if error is not None:
                    raise error
        may_end.set()
        with pytest.raises(ErrorSwallowed):
            await task

    async_to_sync(both)()
    assert not connection.in_atomic_block
    assert not Effect.objects.exists()
    assert not ProcessedMessage.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_block_whose_task_is_cancelled_at_its_end_is_over() -> None:
    """Its end waits for the shared thread, behind the call of another task."""

    async def cancelled() -> None:
        is_inside, is_busy, may_go_on = asyncio.Event(), asyncio.Event(), Event()
        loop = asyncio.get_running_loop()

        async def block() -> None:
            async with once("a", consumer="billing") as run:
                assert run.is_first
                is_inside.set()
                await is_busy.wait()

        def occupy() -> None:
            loop.call_soon_threadsafe(is_busy.set)
            assert may_go_on.wait(60)

        task = asyncio.create_task(block())
        await is_inside.wait()
        other = asyncio.create_task(sync_to_async(occupy)())
        await is_busy.wait()
        for _turn_of_the_loop in range(10):
            await asyncio.sleep(0)
        task.cancel()
        may_go_on.set()
        await asyncio.wait({task, other})
        assert task.cancelled()

    async def later() -> bool:
        async with once("b", consumer="billing") as run:
            return run.is_first

    async_to_sync(cancelled)()
    assert not connection.in_atomic_block
    assert async_to_sync(later)()


@pytest.mark.django_db(transaction=True)
def test_a_task_within_a_block_may_open_another_one() -> None:
    async def inner() -> None:
        async with once("b", consumer="billing") as run:
            assert run.is_first
            await Effect.objects.acreate(text="b")

    async def outer() -> None:
        async with once("a", consumer="billing") as run:
            assert run.is_first
            await asyncio.create_task(inner())
            await asyncio.create_task(inner_of_another())
            raise LookupError

    async def inner_of_another() -> None:
        async with once("c", consumer="billing") as run:
            assert run.is_first

    with pytest.raises(LookupError):
        async_to_sync(outer)()
    assert not Effect.objects.exists()
    assert not ProcessedMessage.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_an_async_block_responds_and_its_repeat_reads_that() -> None:
    async def handle() -> Any:
        async with once("a", consumer="billing") as run:
            if run.is_first:
                await run.arespond({"charged": 5})
        return run.response

    async def twice() -> list[Any]:
        async with ThreadSensitiveContext():
            answers = [await handle(), await handle()]
            await sync_to_async(connections.close_all)()
        return answers

    assert asyncio.run(twice()) == [{"charged": 5}] * 2


@pytest.mark.django_db(transaction=True)
def test_a_block_that_is_cancelled_while_it_waits_leaves_no_claim() -> None:
    has_claimed, may_end = Event(), Event()

    def hold() -> None:
        with suppress(LookupError), once(MESSAGE, consumer="billing") as run:
            assert run.is_first
            has_claimed.set()
            may_end.wait(10)
            raise LookupError

    async def wait_in_vain() -> None:
        async with once(MESSAGE, consumer="billing"):
            raise AssertionError("it was cancelled before")

    async def cancel() -> None:
        task = asyncio.create_task(wait_in_vain())
        await asyncio.to_thread(_closing(wait_until_blocked))
        task.cancel()
        may_end.set()
        await asyncio.wait({task})
        assert task.cancelled()
        (sessions,) = await asyncio.to_thread(_closing(_sessions_in_transaction))
        assert sessions == 0

    with ThreadPoolExecutor(1) as pool:
        holder = pool.submit(_closing(hold))
        assert has_claimed.wait(10)
        asyncio.run(cancel())
        holder.result(10)
    do()


@pytest.mark.django_db(transaction=True)
def test_an_async_block_commits_or_rolls_back() -> None:
    async def block(*, fails: bool) -> bool:
        async with once(MESSAGE, consumer="billing") as run:
            if run.is_first:
                await Effect.objects.acreate(text="done")
            if fails:
                raise LookupError
        return run.is_first

    with pytest.raises(LookupError):
        asyncio.run(block(fails=True))
    assert asyncio.run(block(fails=False))
    assert not asyncio.run(block(fails=False))
    assert Effect.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_an_async_block_survives_that_the_same_again_inside_is_refused() -> None:
    async def block() -> None:
        async with once(MESSAGE, consumer="billing") as run:
            assert run.is_first
            # A transaction that is left open must not block the tests that follow.
            limit = "SET LOCAL idle_in_transaction_session_timeout = '5s'"
            await sync_to_async(_execute)(limit)
            await Effect.objects.acreate(text="before")
            with pytest.raises(AlreadyOpen):
                async with once(MESSAGE, consumer="billing"):
                    raise AssertionError("it was refused before")
            await Effect.objects.acreate(text="after")

    asyncio.run(block())
    assert sorted(effect.text for effect in Effect.objects.all()) == ["after", "before"]
    assert ProcessedMessage.objects.count() == 1


@pytest.mark.django_db
def test_the_leader_prunes_what_is_older_than_the_retention(
    settings: Settings,
) -> None:
    for number, days in enumerate([40, 31, 1]):
        ProcessedMessage.objects.create(
            consumer="c", key=str(number), processed_at=Now() - timedelta(days=days)
        )
    assert pruning.prune() == 0
    settings.DJANGO_OUTBOX = {"PROCESSED_RETENTION": 30 * 86_400.0}
    assert pruning.prune() == 2
    assert [row.key for row in ProcessedMessage.objects.all()] == ["2"]


@pytest.mark.django_db
@pytest.mark.parametrize(("longest", "left"), [(60.0, 0), (0.0, 2)])
def test_the_leader_prunes_chunks_for_a_moment(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, longest: float, left: int
) -> None:
    settings.DJANGO_OUTBOX = {"PROCESSED_RETENTION": 86_400.0}
    monkeypatch.setattr(pruning, "CHUNK", 1)
    monkeypatch.setattr(pruning, "MAX_PRUNE_TIME", longest)
    for number in range(3):
        ProcessedMessage.objects.create(
            consumer="c", key=str(number), processed_at=Now() - timedelta(days=2)
        )
    assert pruning.prune() == 3 - left
    assert ProcessedMessage.objects.count() == left


@pytest.mark.django_db(transaction=True)
def test_the_leader_waits_for_no_lock_with_pruning(
    settings: Settings,
) -> None:
    """All receivers of its signals would wait."""
    settings.DJANGO_OUTBOX = {"PROCESSED_RETENTION": 86_400.0}
    ProcessedMessage.objects.create(
        consumer="c", key="k", processed_at=Now() - timedelta(days=2)
    )
    with psycopg.connect(**connection.get_connection_params()) as other:
        other.execute("LOCK TABLE outbox_processed IN SHARE MODE")
        assert pruning.prune() == 0
    assert pruning.prune() == 1


@pytest.mark.django_db(databases=["default", "other"])
def test_the_leader_prunes_the_database_that_it_harvests(settings: Settings) -> None:
    settings.DJANGO_OUTBOX = {"PROCESSED_RETENTION": 86_400.0}
    for alias in ("default", "other"):
        ProcessedMessage.objects.using(alias).create(
            consumer="c", key="k", processed_at=Now() - timedelta(days=2)
        )
    pruning.prune_harvested(event=replace(READING, database="other", shard=1))
    assert ProcessedMessage.objects.using("other").exists()
    pruning.prune_harvested(event=replace(READING, database="other"))
    assert ProcessedMessage.objects.using("default").exists()
    assert not ProcessedMessage.objects.using("other").exists()


@pytest.mark.django_db
def test_pruning_uses_the_index() -> None:
    with connection.cursor() as cursor:
        # The table is too small for the planner to care.
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("SET LOCAL enable_bitmapscan = off")
        cursor.execute(
            "EXPLAIN SELECT key FROM outbox_processed"
            " WHERE processed_at < now() ORDER BY processed_at LIMIT 100"
        )
        plan = "\n".join(row[0] for row in cursor.fetchall())
    assert "Index" in plan
    assert "Sort" not in plan


@pytest.mark.django_db(transaction=True)
def test_a_lost_connection_is_told_from_a_failing_statement() -> None:
    """Also when the next connection would work, and when the handler wraps it."""
    with pytest.raises(OperationalError) as failed, transaction.atomic():
        _execute("SET LOCAL statement_timeout = 1; SELECT pg_sleep(5)")
    assert not is_service_unavailable(failed.value)
    with pytest.raises(OperationalError) as lost, transaction.atomic():
        _execute("SELECT pg_terminate_backend(pg_backend_pid())")
    assert is_service_unavailable(lost.value)
    wrapped = LookupError()
    wrapped.__cause__ = lost.value
    assert is_service_unavailable(wrapped)
    assert not is_service_unavailable(LookupError())
    implied = LookupError()
    implied.__context__ = lost.value
    assert is_service_unavailable(implied)
    implied.__suppress_context__ = True
    assert not is_service_unavailable(implied)


@pytest.mark.django_db
def test_a_closed_cursor_is_a_mistake_and_no_outage() -> None:
    with connection.cursor() as cursor:
        pass
    with pytest.raises(InterfaceError) as failed:
        cursor.execute("SELECT 1")
    assert not is_service_unavailable(failed.value)


@pytest.mark.django_db
def test_a_mistake_in_a_statement_of_another_kind_of_database_is_no_outage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite and MySQL raise an OperationalError for both."""
    found = {
        name: {"ENGINE": "django.db.backends.sqlite3", "NAME": tmp_path / name}
        for name in ("default", "nowhere/legacy")
    }
    handler = ConnectionHandler(found)
    monkeypatch.setattr(outages, "connections", handler)
    with pytest.raises(OperationalError, match="no such table") as failed:
        handler["default"].cursor().execute("SELECT * FROM nowhere")
    assert not is_service_unavailable(failed.value)
    with pytest.raises(OperationalError, match="unable to open") as away:
        handler["nowhere/legacy"].cursor()
    assert is_service_unavailable(away.value)
    handler.close_all()


@pytest.mark.django_db
def test_a_server_that_is_no_primary_any_more_is_away() -> None:
    with pytest.raises(InternalError) as refused, transaction.atomic():
        _execute("SET LOCAL transaction_read_only = on; DELETE FROM outbox")
    assert is_service_unavailable(refused.value)


def _execute(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


def _sessions_in_transaction() -> tuple[int]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE datname = current_database() AND state = 'idle in transaction'"
        )
        (row,) = cursor.fetchall()
    return (int(row[0]),)


def _closing(job: Callable[[], Any]) -> Callable[[], Any]:
    def run() -> Any:
        try:
            return job()
        finally:
            connections.close_all()

    return run
