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
from django.db import DatabaseError

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
    ("when", "last", "following"),
    [
        (schedule(30), NOON.replace(second=0), NOON.replace(second=30)),
        (schedule(0.5), NOON, NOON.replace(microsecond=500_000)),
        (schedule(7 * 86400), None, datetime(2026, 3, 5, tzinfo=UTC)),
        (crontab(), NOON.replace(second=0), NOON.replace(minute=1, second=0)),
        (
            crontab(minute="*/2"),
            NOON.replace(second=0),
            NOON.replace(minute=2, second=0),
        ),
        (crontab(minute=30, hour=6), None, datetime(2026, 3, 2, 6, 30, tzinfo=UTC)),
    ],
)
def test_due_times_do_not_depend_on_the_process(
    celery: Celery, when: Any, last: datetime | None, following: datetime
) -> None:
    when.app = celery
    assert due_times(when, NOON) == (last, following)


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
