"""Leader tasks: when they are sent, and under which leader id."""

from __future__ import annotations

import logging
import math
import queue
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from celery import Celery, current_app
from django.test.utils import isolate_apps

from django_outbox import signals
from django_outbox.clock import boottime_ns
from django_outbox.contrib import fencing
from django_outbox.contrib import singleton as singleton_module
from django_outbox.contrib.celery import leader_task
from django_outbox.contrib.singleton import LeaderRun, Singleton
from django_outbox.events import (
    Event,
    LeaderAcquired,
    LeaderFenced,
    LeaderRefreshed,
    LeaderRevoked,
    MeterRead,
)
from django_outbox.exceptions import ConfigurationError

FIRST = "00000000-0000-4000-8000-000000000001"
SECOND = "00000000-0000-4000-8000-000000000002"
PATIENCE = 10.0
LONG_AGO = 60 * 1_000_000_000


@dataclass
class MemoryFence:
    """A fence without a database, and what was asked of it."""

    leader_id: str | None = None
    calls: list[str] = field(default_factory=list)
    unit_goes_on: bool = False

    def claim(self, name: str, leader_id: str, *, is_fresh: Callable[[], bool]) -> bool:
        self.calls.append("claim")
        if self.leader_id != leader_id and is_fresh():
            self.leader_id = leader_id
        return self.leader_id == leader_id

    def end(self, name: str, leader_id: str) -> bool:
        self.calls.append("end")
        was_ours = self.leader_id == leader_id
        if was_ours:
            self.leader_id = None
        return was_ours

    def wait_for_unit(self, name: str, *, timeout: float) -> bool:
        self.calls.append("wait")
        return not self.unit_goes_on

    @contextmanager
    def unit(self, name: str, leader_id: str) -> Iterator[None]:
        if self.leader_id != leader_id:
            raise fencing.UnitRefused
        yield


@pytest.fixture
def fence() -> MemoryFence:
    return MemoryFence()


@pytest.fixture
def sent() -> queue.SimpleQueue[str]:
    """The leader ids with which the task was sent."""
    return queue.SimpleQueue()


@pytest.fixture
def singleton(fence: MemoryFence, sent: queue.SimpleQueue[str]) -> Iterator[Singleton]:
    singleton = Singleton(fence, sent.put, name="work", interval=0.005)
    yield singleton
    for leader_id in (FIRST, SECOND):
        singleton.fence(LeaderFenced(name="a", leader_id=leader_id, reason="over"))


def acquired(leader_id: str = FIRST, **values: Any) -> LeaderAcquired:
    return LeaderAcquired(name="a", leader_id=leader_id, **values)


def revoked(leader_id: str = FIRST) -> LeaderRevoked:
    return LeaderRevoked(name="a", leader_id=leader_id)


def fenced(leader_id: str = FIRST) -> LeaderFenced:
    return LeaderFenced(name="a", leader_id=leader_id, reason="no heartbeat")


def meter_read(leader_id: str | None = FIRST, **values: Any) -> MeterRead:
    return MeterRead(
        name="a",
        leader_id=leader_id,
        rate=0.0,
        purged=0,
        failed=0,
        in_flight=0,
        blocked_keys=0,
        backlog=0,
        is_backlog_capped=False,
        oldest_age=0.0,
        receiver_errors=0,
        **values,
    )


def is_silent(sent: queue.SimpleQueue[str]) -> bool:
    """Whether nothing more comes, once what is on its way has come."""
    try:
        sent.get(timeout=0.1)
        sent.get(timeout=0.1)
    except queue.Empty:
        return True
    return False


@pytest.mark.parametrize("interval", [0, -1.0, math.nan, math.inf, 1e12, True, "5"])
def test_an_interval_is_a_positive_number(fence: MemoryFence, interval: Any) -> None:
    """With others the task would be sent all the time, or once."""
    with pytest.raises(ConfigurationError, match=r"work: interval=.* above 0"):
        Singleton(fence, print, name="work", interval=interval)


@pytest.mark.parametrize("shard", [-1, True, "0", None])
def test_a_shard_has_a_number(fence: MemoryFence, shard: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"work: shard=.* from 0"):
        Singleton(fence, print, name="work", interval=1.0, shard=shard)


def test_a_task_with_a_wrong_interval_is_not_declared(
    celery: Celery, fence: MemoryFence
) -> None:
    with pytest.raises(ConfigurationError, match=r"tests\.work: interval=0 must"):
        leader_task(fence, interval=0, name="tests.work", shared=False)(print)
    assert "tests.work" not in celery.tasks


def test_a_leader_sends_the_task_again_and_again(
    singleton: Singleton, sent: queue.SimpleQueue[str]
) -> None:
    singleton.lead(acquired())
    assert [sent.get(timeout=PATIENCE) for _ in range(3)] == [FIRST, FIRST, FIRST]


def test_a_revoked_leader_ends_its_id_and_then_waits_for_the_running_unit(
    singleton: Singleton, fence: MemoryFence
) -> None:
    singleton.lead(acquired())
    singleton.revoke(revoked())
    assert fence.calls == ["claim", "end", "wait"]
    assert fence.leader_id is None


def test_a_revoked_leader_sends_nothing_more(
    singleton: Singleton, sent: queue.SimpleQueue[str]
) -> None:
    singleton.lead(acquired())
    sent.get(timeout=PATIENCE)
    singleton.revoke(revoked())
    while not sent.empty():
        sent.get()
    assert is_silent(sent)


def test_a_unit_that_outlasts_the_budget_is_told_of(
    singleton: Singleton, fence: MemoryFence, caplog: pytest.LogCaptureFixture
) -> None:
    fence.unit_goes_on = True
    singleton.lead(acquired())
    with caplog.at_level(logging.WARNING):
        singleton.revoke(revoked())
    assert "runs longer than REVOKE_TIMEOUT" in caplog.text


def test_a_fenced_leader_ends_its_id_and_waits_for_nothing(
    singleton: Singleton, fence: MemoryFence
) -> None:
    singleton.lead(acquired())
    singleton.fence(fenced())
    assert fence.calls == ["claim", "end"]


def test_a_refreshed_leader_goes_on_under_its_new_id(
    singleton: Singleton, sent: queue.SimpleQueue[str]
) -> None:
    singleton.lead(acquired())
    sent.get(timeout=PATIENCE)
    singleton.refresh(
        LeaderRefreshed(
            name="a", leader_id=SECOND, previous_leader_id=FIRST, reason="failure"
        )
    )
    while sent.get(timeout=PATIENCE) != SECOND:
        pass


def test_a_reading_that_arrives_after_the_end_starts_nothing(
    singleton: Singleton, fence: MemoryFence
) -> None:
    """The meter and the election tell of the same leader id on two threads."""
    singleton.lead(acquired())
    singleton.fence(fenced())
    singleton.lead(meter_read())
    assert fence.leader_id is None


def test_an_event_that_waited_too_long_claims_nothing(
    singleton: Singleton, fence: MemoryFence
) -> None:
    """By then a successor may lead."""
    singleton.lead(acquired(boottime_ns=boottime_ns() - LONG_AGO))
    assert fence.leader_id is None


def test_a_fresh_reading_claims_what_a_late_event_could_not(
    singleton: Singleton, fence: MemoryFence, sent: queue.SimpleQueue[str]
) -> None:
    singleton.lead(acquired(boottime_ns=boottime_ns() - LONG_AGO))
    singleton.lead(meter_read())
    assert sent.get(timeout=PATIENCE) == FIRST


def test_a_leader_whose_row_was_taken_sends_nothing_more(
    singleton: Singleton, fence: MemoryFence, sent: queue.SimpleQueue[str]
) -> None:
    singleton.lead(acquired())
    fence.leader_id = SECOND
    singleton.lead(meter_read(boottime_ns=boottime_ns() - LONG_AGO))
    while not sent.empty():
        sent.get()
    assert is_silent(sent)


@pytest.mark.parametrize("event", [acquired(shard=1), meter_read(leader_id=None)])
def test_a_process_that_does_not_lead_shard_zero_claims_nothing(
    singleton: Singleton, fence: MemoryFence, event: Event
) -> None:
    singleton.lead(event)
    assert fence.calls == []


@pytest.mark.parametrize("error", [ConnectionError("away"), SystemExit(1)])
def test_what_cannot_be_sent_is_tried_again_at_the_next_tick(
    fence: MemoryFence, sent: queue.SimpleQueue[str], error: BaseException
) -> None:
    """A task that runs eagerly may call a command, which may end by `sys.exit()`."""
    failures = [error]

    def send(leader_id: str) -> None:
        if failures:
            raise failures.pop()
        sent.put(leader_id)

    singleton = Singleton(fence, send, name="work", interval=0.005)
    singleton.lead(acquired())
    assert sent.get(timeout=PATIENCE) == FIRST
    singleton.fence(fenced())


@pytest.fixture
def celery() -> Iterator[Celery]:
    """The project's Celery app, current on this thread only, as in a project."""
    previous = current_app._get_current_object()
    app = Celery("tests")
    app.conf.task_always_eager = True
    yield app
    previous.set_current()
    for signal in signals._SIGNALS.values():
        signal.disconnect(dispatch_uid="singleton:tests.work")
    singleton_module._shards.pop("tests.work", None)


def test_a_leader_task_runs_with_the_id_of_the_leader(
    celery: Celery, fence: MemoryFence
) -> None:
    """On the beat's own thread, too, it is a task of the project's app."""
    seen: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()

    @leader_task(fence, interval=60.0, name="tests.work", shared=False)
    def work(run: LeaderRun) -> None:
        with run.unit():
            seen.put((run.name, run.leader_id))

    signals.send(acquired())
    assert seen.get(timeout=PATIENCE) == ("tests.work", FIRST)
    signals.send(fenced())


def test_the_leader_of_its_shard_sends_a_task(
    fence: MemoryFence, sent: queue.SimpleQueue[str]
) -> None:
    singleton = Singleton(fence, sent.put, name="work", interval=60.0, shard=1)
    singleton.lead(acquired(SECOND, shard=0))
    singleton.lead(acquired(FIRST, shard=1))
    assert sent.get(timeout=PATIENCE) == FIRST
    singleton.fence(fenced())


@pytest.mark.usefixtures("celery")
def test_a_task_of_a_shard_that_nobody_leads_is_told(
    fence: MemoryFence, caplog: pytest.LogCaptureFixture
) -> None:
    Singleton(fence, print, name="tests.work", interval=1.0, shard=1).connect()
    assert "tests.work is a task of shard 1, and SHARDS is 1: no leader" in caplog.text


@pytest.mark.usefixtures("celery")
def test_tasks_of_two_shards_have_two_names(fence: MemoryFence) -> None:
    """Else the second one would replace the first, whose fence it shares."""
    leader_task(fence, interval=60.0, name="tests.work", shard=0, shared=False)(print)
    with pytest.raises(ConfigurationError, match="is a task of shard 0 already"):
        leader_task(fence, interval=60.0, name="tests.work", shard=1, shared=False)(
            print
        )


def test_a_run_ends_quietly_where_its_leader_id_has_ended(
    celery: Celery, fence: MemoryFence
) -> None:
    steps: list[str] = []

    @leader_task(fence, interval=60.0, name="tests.work", shared=False)
    def work(run: LeaderRun) -> None:
        with run.unit():
            steps.append("worked")
        fence.end(run.name, run.leader_id)
        with run.unit():
            steps.append("worked on")

    fence.leader_id = FIRST
    result = work.apply_async(kwargs={"leader_id": FIRST})
    assert result.successful()
    assert steps == ["worked"]


def test_a_leader_task_is_a_task_of_celery_under_the_functions_path(
    celery: Celery, fence: MemoryFence
) -> None:
    @leader_task(fence, interval=60.0, rate_limit="9/m", shared=False)
    def invoices(run: LeaderRun) -> None:
        """Write invoices."""

    name = f"{__name__}.invoices"
    for signal in signals._SIGNALS.values():
        signal.disconnect(dispatch_uid=f"singleton:{name}")
    assert celery.tasks[name].rate_limit == "9/m"
    assert celery.tasks[name].__doc__ == "Write invoices."


@isolate_apps("django_outbox")
def test_a_row_says_who_leads() -> None:
    class Leadership(fencing.Leadership):
        class Meta:
            app_label = "django_outbox"

    assert str(Leadership(name="work", leader_id=FIRST)) == f"work: {FIRST}"
    assert str(Leadership(name="work")) == "work: nobody"
