"""Celery beat that shares its schedule, with Celery's broker in memory."""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, current_app
from celery.beat import SchedulingError
from celery.schedules import crontab, schedule
from django.db import DatabaseError, connection

from django_outbox.contrib import shared_beat
from django_outbox.contrib.shared_beat import SharedScheduler, due_times
from django_outbox.exceptions import ConfigurationError
from django_outbox.models import ProcessedMessage

PAGE = (Path(__file__).parents[2] / "docs/howto/several-beats.md").read_text("utf-8")
(BLOCK,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)

NOON = datetime(2026, 3, 1, 12, 0, 5, tzinfo=UTC)


class Beat(SharedScheduler):
    """A process's scheduler, with a clock of the test."""

    moment = NOON

    def now(self) -> datetime:
        return self.moment


class Dusk(schedule):  # type: ignore[misc]  # Celery has no types
    """A schedule of the project's own."""


@pytest.fixture
def celery() -> Iterator[Celery]:
    """The project's app, with one task that is due every 30 seconds."""
    previous = current_app._get_current_object()
    app = Celery("tests", broker=f"memory://{uuid.uuid4()}")
    app.conf.task_default_queue = uuid.uuid4().hex
    app.conf.beat_schedule = {"sync": {"task": "shop.sync", "schedule": 30.0}}
    yield app
    app.close()
    previous.set_current()


@pytest.fixture
def beat(celery: Celery) -> Callable[[], Beat]:
    """Starts another process's scheduler."""
    return lambda: Beat(celery)


@pytest.fixture
def sent(celery: Celery) -> Callable[[], list[str]]:
    """Returns the ids of the tasks that the broker has got since the last call."""

    def sent() -> list[str]:
        name = celery.conf.task_default_queue
        with celery.connection_for_read() as connection:
            box = connection.SimpleQueue(name)
            letters = [box.get(timeout=1) for _ in range(box.qsize())]
            for letter in letters:
                letter.ack()
            box.close()
        return [letter.headers["id"] for letter in letters]

    return sent


@pytest.mark.django_db(transaction=True)
def test_each_due_time_is_sent_by_one_of_them(
    beat: Callable[[], Beat], sent: Callable[[], list[str]]
) -> None:
    one, other = beat(), beat()
    assert one.tick() == 5
    assert other.tick() == 5
    (first,) = sent()
    for both in (one, other):
        both.moment = NOON + timedelta(seconds=23)
        assert both.tick() == 2
    assert sent() == []
    for both in (other, one):
        both.moment = NOON + timedelta(seconds=25)
        both.tick()
    (second,) = sent()
    assert first != second
    keys = ProcessedMessage.objects.values_list("key", flat=True)
    assert sorted(keys) == [
        "sync@2026-03-01T12:00:00+00:00",
        "sync@2026-03-01T12:00:30+00:00",
    ]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", ["x" * 600, "two\nlines"])
def test_a_name_that_is_no_key_is_sent_once_too(
    celery: Celery, beat: Callable[[], Beat], sent: Callable[[], list[str]], name: str
) -> None:
    """Celery names an entry after all arguments of its task."""
    celery.conf.beat_schedule = {name: {"task": "shop.sync", "schedule": 30.0}}
    for process in (beat(), beat()):
        process.tick()
    (task_id,) = sent()
    assert ProcessedMessage.objects.get().key == task_id


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("when", ["before", "after"])
def test_what_was_not_committed_is_sent_again_with_the_same_id(
    beat: Callable[[], Beat],
    sent: Callable[[], list[str]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    when: str,
) -> None:
    original = Beat.apply_async

    def fail(self: Beat, *arguments: Any, **options: Any) -> None:
        if when == "after":
            original(self, *arguments, **options)
        raise SchedulingError("Celery's broker is away")

    one, other = beat(), beat()
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(Beat, "apply_async", fail)
        assert one.tick() == 1
    assert "Could not send sync, due at 2026-03-01 12:00:00+00:00" in caplog.text
    before = sent()
    other.tick()
    one.tick()
    (again,) = sent()
    assert before == ([again] if when == "after" else [])


@pytest.mark.django_db(transaction=True)
def test_it_waits_for_the_database(
    beat: Callable[[], Beat],
    sent: Callable[[], list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise DatabaseError("away")

    one = beat()
    with monkeypatch.context() as patch:
        patch.setattr(shared_beat, "Once", refuse)
        assert one.tick() == 1
    assert sent() == []
    one.tick()
    assert len(sent()) == 1


@pytest.mark.django_db(transaction=True)
def test_it_waits_for_the_broker_before_it_claims(
    celery: Celery, sent: Callable[[], list[str]]
) -> None:
    """A claim would not outlive CONSUMER_IDLE_TIMEOUT."""

    class Early(Beat):
        @property
        def producer(self) -> Any:
            assert not connection.in_atomic_block
            self.moment = NOON + timedelta(minutes=10)
            return super().producer

    Early(celery).tick()
    assert len(sent()) == 1
    assert ProcessedMessage.objects.get().key == "sync@2026-03-01T12:10:00+00:00"


@pytest.mark.django_db(transaction=True)
def test_what_was_due_long_ago_is_not_sent(
    celery: Celery, beat: Callable[[], Beat], sent: Callable[[], list[str]]
) -> None:
    celery.conf.beat_schedule = {
        "late": {"task": "shop.late", "schedule": crontab(minute=54, hour=11)},
        "in time": {"task": "shop.in_time", "schedule": crontab(minute=56, hour=11)},
    }
    beat().tick()
    assert len(sent()) == 1
    assert ProcessedMessage.objects.get().key.startswith("in time@")


@pytest.mark.parametrize(
    ("when", "last", "look_at"),
    [
        (schedule(30), NOON.replace(second=0), NOON.replace(second=30)),
        (schedule(0.5), NOON, NOON.replace(microsecond=500_000)),
        (schedule(7 * 86400), None, datetime(2026, 3, 5, tzinfo=UTC)),
        (crontab(), NOON.replace(second=0), NOON.replace(minute=1, second=0)),
        (
            crontab(minute="*/2"),
            NOON.replace(second=0),
            NOON.replace(minute=1, second=0),
        ),
        (crontab(minute=30, hour=6), None, NOON.replace(minute=1, second=0)),
        (
            crontab(minute=56, hour=11, day_of_week="sun", day_of_month=1),
            NOON.replace(hour=11, minute=56, second=0),
            NOON.replace(minute=1, second=0),
        ),
        (
            crontab(day_of_week="mon-sat"),
            None,
            NOON.replace(minute=1, second=0),
        ),
        (crontab(month_of_year=4), None, NOON.replace(minute=1, second=0)),
    ],
)
def test_due_times_do_not_depend_on_the_process(
    celery: Celery, when: Any, last: datetime | None, look_at: datetime
) -> None:
    when.app = celery
    assert due_times(when, NOON) == (last, look_at)


@pytest.mark.parametrize(
    ("zone", "now", "last"),
    [
        ("Europe/Berlin", datetime(2026, 7, 1, 4, 1, tzinfo=UTC), 4),
        ("Europe/Berlin", datetime(2026, 1, 1, 5, 1, tzinfo=UTC), 5),
    ],
)
def test_a_crontab_is_in_the_time_zone_of_the_app(
    celery: Celery, zone: str, now: datetime, last: int
) -> None:
    celery.conf.timezone = zone
    when = crontab(minute=0, hour=6, app=celery)
    assert due_times(when, now)[0] == now.replace(hour=last, minute=0)


PUT_BACK, PUT_FORWARD = "2026-10-25", "2026-03-29"
"""In Berlin, both at 01:00 UTC: 02:00 to 03:00 comes twice, or not at all."""


@pytest.mark.parametrize(
    ("day", "when", "due"),
    [
        (PUT_BACK, {"minute": "*/20"}, "00:00 00:20 00:40 01:00 01:20 01:40"),
        (PUT_BACK, {"minute": 30}, "00:30 01:30"),
        (PUT_BACK, {"minute": 30, "hour": 2}, "00:30"),
        (PUT_BACK, {"minute": 30, "hour": "*/2"}, "00:30"),
        (PUT_FORWARD, {"minute": 30}, "00:30 01:30"),
        (PUT_FORWARD, {"minute": 30, "hour": 1}, "00:30"),
        (PUT_FORWARD, {"minute": "*/20", "hour": 2}, "01:00 01:20 01:40"),
        (PUT_FORWARD, {"minute": 30, "hour": 3}, "01:30"),
        (PUT_FORWARD, {"minute": 30, "hour": "2,3"}, "01:30"),
        ("2026-10-26", {"minute": 30, "hour": 2}, "01:30"),
        ("2026-03-30", {"minute": 30, "hour": 2}, "00:30"),
    ],
)
def test_nothing_is_left_out_or_sent_twice_where_clocks_are_changed(
    celery: Celery, day: str, when: dict[str, Any], due: str
) -> None:
    celery.conf.timezone = "Europe/Berlin"
    midnight = datetime.fromisoformat(f"{day}T00:00:00+00:00")
    looks = (midnight + timedelta(minutes=n, seconds=5) for n in range(120))

    found = [due_times(crontab(**when, app=celery), look)[0] for look in looks]

    times = [f"{one:%H:%M}" for one in found if one and one >= midnight]
    assert [*dict.fromkeys(times)] == due.split()


@pytest.mark.parametrize("when", [Dusk(30), schedule(0)])
def test_a_schedule_that_processes_may_read_differently_is_refused(
    celery: Celery, beat: Callable[[], Beat], when: Any
) -> None:
    celery.conf.beat_schedule = {"dusk": {"task": "shop.dusk", "schedule": when}}
    with pytest.raises(ConfigurationError, match=r"beat_schedule\['dusk'\]: "):
        beat()


@pytest.mark.django_db(transaction=True)
def test_the_schedule_of_the_page_is_taken(sent: Callable[[], list[str]]) -> None:
    names: dict[str, Any] = {}
    exec(compile(BLOCK, "several-beats.md", "exec"), names)  # noqa: S102
    with names["app"] as app:
        entries = Beat(app).schedule
    assert {*entries} >= {"sync stock", "invoices"}
