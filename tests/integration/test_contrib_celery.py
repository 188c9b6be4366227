"""The table that fences leader-only work, on a real Postgres."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from django.db import Error, connection, connections
from django.test.utils import isolate_apps

from django_outbox.contrib import fencing
from tests.waiting import eventually

NAME = "billing.tasks.invoice_run"
FIRST = "00000000-0000-4000-8000-000000000001"
SECOND = "00000000-0000-4000-8000-000000000002"
PATIENCE = 10.0

Managers = fencing.LeadershipManager


@pytest.fixture
def fence(transactional_db: None) -> Iterator[Managers]:
    """The manager of a concrete model, whose table exists during the test."""
    with isolate_apps("django_outbox"):

        class Leadership(fencing.Leadership):
            class Meta:
                app_label = "django_outbox"
                db_table = "test_leadership"

        with connection.schema_editor() as editor:
            editor.create_model(Leadership)
        yield Leadership.objects
        with connection.schema_editor() as editor:
            editor.delete_model(Leadership)


@pytest.fixture
def elsewhere() -> Iterator[ThreadPoolExecutor]:
    """A thread with a database connection of its own: another process, in short."""
    executor = ThreadPoolExecutor(1)
    yield executor
    executor.submit(connections.close_all).result(PATIENCE)
    executor.shutdown()


@contextmanager
def running_unit(fence: Managers, elsewhere: ThreadPoolExecutor) -> Iterator[None]:
    """Hold a unit of the first leader open during the block."""
    begun, finish = threading.Event(), threading.Event()

    def work() -> None:
        with fence.unit(NAME, FIRST):
            begun.set()
            finish.wait(PATIENCE)

    unit: Future[None] = elsewhere.submit(work)
    assert begun.wait(PATIENCE), unit.exception(0)
    try:
        yield
    finally:
        finish.set()
    unit.result(PATIENCE)


def always() -> bool:
    return True


def never() -> bool:
    return False


def leader_of(fence: Managers) -> str | None:
    row = fence.filter(name=NAME).first()
    return str(row.leader_id) if row and row.leader_id else None


def test_the_present_leader_gets_its_unit(fence: Managers) -> None:
    assert fence.claim(NAME, FIRST, is_fresh=always)
    with fence.unit(NAME, FIRST):
        pass


def test_a_unit_that_raises_leaves_nothing_behind(fence: Managers) -> None:
    fence.claim(NAME, FIRST, is_fresh=always)
    with pytest.raises(ZeroDivisionError), fence.unit(NAME, FIRST):
        fence.create(name="written by the unit")
        _ = 1 / 0
    assert not fence.filter(name="written by the unit").exists()


def test_nobody_gets_a_unit_before_the_first_claim(fence: Managers) -> None:
    with pytest.raises(fencing.UnitRefused), fence.unit(NAME, FIRST):
        pytest.fail("the unit ran")


def test_a_former_leader_gets_no_unit_after_its_successors_claim(
    fence: Managers,
) -> None:
    """Though it was never told that it is a former one."""
    fence.claim(NAME, FIRST, is_fresh=always)
    fence.claim(NAME, SECOND, is_fresh=always)
    with pytest.raises(fencing.UnitRefused), fence.unit(NAME, FIRST):
        pytest.fail("the unit ran")


def test_no_unit_begins_after_the_end_of_its_leader_id(fence: Managers) -> None:
    fence.claim(NAME, FIRST, is_fresh=always)
    assert fence.end(NAME, FIRST)
    with pytest.raises(fencing.UnitRefused), fence.unit(NAME, FIRST):
        pytest.fail("the unit ran")


def test_a_former_leader_cannot_end_its_successors_id(fence: Managers) -> None:
    fence.claim(NAME, SECOND, is_fresh=always)
    assert not fence.end(NAME, FIRST)
    assert leader_of(fence) == SECOND


def test_a_leader_that_slept_on_its_way_cannot_replace_its_successor(
    fence: Managers,
) -> None:
    """It looked at the row and at the clock in time, then slept, then wrote."""

    def is_fresh_and_then_sleeps() -> bool:
        fence.claim(NAME, SECOND, is_fresh=always)
        fence.end(NAME, SECOND)
        fence.claim(NAME, SECOND, is_fresh=always)
        return True

    assert not fence.claim(NAME, FIRST, is_fresh=is_fresh_and_then_sleeps)
    assert leader_of(fence) == SECOND


def test_a_leader_that_came_too_late_claims_nothing(fence: Managers) -> None:
    assert not fence.claim(NAME, FIRST, is_fresh=never)
    assert leader_of(fence) is None


def test_the_present_leader_may_claim_again_at_any_time(fence: Managers) -> None:
    fence.claim(NAME, FIRST, is_fresh=always)
    assert fence.claim(NAME, FIRST, is_fresh=never)


@pytest.mark.parametrize("leader_id", [FIRST, SECOND])
def test_units_of_one_singleton_never_overlap(
    fence: Managers, elsewhere: ThreadPoolExecutor, leader_id: str
) -> None:
    fence.claim(NAME, FIRST, is_fresh=always)
    with running_unit(fence, elsewhere):
        fence.claim(NAME, leader_id, is_fresh=always)
        with pytest.raises(fencing.UnitRefused), fence.unit(NAME, leader_id):
            pytest.fail("the unit ran")


def test_units_of_two_singletons_may_overlap(
    fence: Managers, elsewhere: ThreadPoolExecutor
) -> None:
    fence.claim(NAME, FIRST, is_fresh=always)
    fence.claim("other", FIRST, is_fresh=always)
    with running_unit(fence, elsewhere), fence.unit("other", FIRST):
        pass


def test_a_leader_id_ends_without_waiting_for_the_running_unit(
    fence: Managers, elsewhere: ThreadPoolExecutor
) -> None:
    """A fenced leader must not wait."""
    fence.claim(NAME, FIRST, is_fresh=always)
    with running_unit(fence, elsewhere):
        assert fence.end(NAME, FIRST)


def test_waiting_for_the_running_unit_gives_up_at_its_time(
    fence: Managers, elsewhere: ThreadPoolExecutor
) -> None:
    fence.claim(NAME, FIRST, is_fresh=always)
    with running_unit(fence, elsewhere):
        assert not fence.wait_for_unit(NAME, timeout=0.05)


def test_waiting_for_the_running_unit_ends_with_it(
    fence: Managers, elsewhere: ThreadPoolExecutor
) -> None:
    fence.claim(NAME, FIRST, is_fresh=always)
    with running_unit(fence, elsewhere):
        pass
    assert fence.wait_for_unit(NAME, timeout=PATIENCE)


def test_a_silent_unit_loses_its_transaction_and_cannot_commit(
    fence: Managers, elsewhere: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frozen process must not hold its successor up for ever."""
    monkeypatch.setattr(fence, "idle_timeout", 0.2)
    fence.claim(NAME, FIRST, is_fresh=always)
    with (
        pytest.raises(Error, match="idle-in-transaction"),
        running_unit(fence, elsewhere),
    ):
        fence.claim(NAME, SECOND, is_fresh=always)
        eventually(lambda: gets_unit(fence, SECOND))


def test_a_unit_sees_what_was_committed_before_it_held_the_lock(
    fence: Managers,
) -> None:
    """Also where the project's transactions are REPEATABLE READ."""
    fence.claim(NAME, FIRST, is_fresh=always)
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_isolation = 'repeatable read'")
    try:
        with fence.unit(NAME, FIRST), connection.cursor() as cursor:
            cursor.execute("SHOW transaction_isolation")
            assert cursor.fetchone() == ("read committed",)
    finally:
        connection.close()


def gets_unit(fence: Managers, leader_id: str) -> bool:
    try:
        with fence.unit(NAME, leader_id):
            return True
    except fencing.UnitRefused:
        return False
