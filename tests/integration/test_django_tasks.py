"""Django's tasks through the outbox, and the how-to, block by block (Django 6.0)."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone
from pytest_django import Settings

from django_outbox import stash
from django_outbox.consuming import handlers
from django_outbox.exceptions import (
    ConfigurationError,
    ConsumingError,
    InvalidMessage,
    NotInTransaction,
)
from django_outbox.models import OutboxRecord, StagedRecord
from django_outbox.testing import OutboxFixture, run_consumer
from tests.testapp.models import Effect

tasks = pytest.importorskip("django.tasks", reason="Django 5.2 has no tasks")

PAGE = (Path(__file__).parents[2] / "docs/howto/django-tasks.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)

pytestmark = pytest.mark.django_db

BACKEND = "django_outbox.contrib.task_backend.OutboxTaskBackend"


@pytest.fixture(autouse=True)
def _backend(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The backend, and no consumers but those of the test."""
    settings.TASKS = {"default": {"BACKEND": BACKEND, "QUEUES": ["default", "mail"]}}
    monkeypatch.setattr(handlers, "_subscriptions", [])


def note(text: str, *, fails: bool = False) -> None:
    """Leave an effect."""
    Effect.objects.create(text=text)
    if fails:
        raise ZeroDivisionError


async def anote(text: str) -> None:
    """Leave an effect."""
    await Effect.objects.acreate(text=text)


def note_context(context: Any, text: str) -> None:
    """Leave an effect with what is known of the run."""
    Effect.objects.create(text=f"{text} {context.attempt} {context.task_result.id}")


def note_wait(context: Any) -> None:
    """Leave how long it has waited."""
    result = context.task_result
    Effect.objects.create(text=str(result.started_at - result.enqueued_at))


@pytest.fixture
def as_task(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a function of this module a task of it."""

    def as_task(function: Any, **options: Any) -> Any:
        made = tasks.task(**options)(function)
        monkeypatch.setattr(sys.modules[__name__], function.__name__, made)
        return made

    return as_task


def run_all(outbox: OutboxFixture, queue: str = "default") -> list[bool]:
    """Run what is in the outbox; return whether each one ran."""
    from django_outbox.contrib.task_backend import run_queue

    handler = run_queue(queue, group=f"g-{len(handlers._subscriptions)}")
    return [run_consumer(handler, message).ran for message in outbox.drain()]


def test_a_task_runs_once_in_the_transaction_that_notes_it(
    outbox: OutboxFixture, as_task: Any
) -> None:
    from django_outbox.contrib.task_backend import run_queue

    result = as_task(note).enqueue("a")
    (stashed,) = outbox.assert_stashed("tasks.default", value__args=["a"])
    assert result.id == str(stashed.message_id)
    assert result.enqueued_at is not None
    handler = run_queue(group="g")
    (message,) = outbox.drain()
    assert run_consumer(handler, message, dies="before-commit").ran
    assert run_consumer(handler, message).ran
    assert run_consumer(handler, message).is_repeat
    assert [effect.text for effect in Effect.objects.all()] == ["a"]


def test_a_rolled_back_transaction_has_no_task(
    outbox: OutboxFixture, as_task: Any
) -> None:
    made = as_task(note)
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        made.enqueue("a")
        raise ZeroDivisionError
    outbox.assert_nothing_stashed()


@pytest.mark.django_db(transaction=True)
def test_outside_of_a_transaction_it_commits_at_once(as_task: Any) -> None:
    as_task(note).enqueue("a")
    with transaction.atomic():
        assert OutboxRecord.objects.count() == 1


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_beside_a_transaction_on_another_database_it_is_refused(as_task: Any) -> None:
    """It would commit at once, and that transaction may still roll back."""
    with transaction.atomic("other"), pytest.raises(NotInTransaction, match="other"):
        as_task(note).enqueue("a")
    assert not OutboxRecord.objects.exists()


def test_a_serializer_of_the_project_is_none_of_tasks(
    outbox: OutboxFixture, as_task: Any, settings: Settings
) -> None:
    """`run_queue()` reads JSON."""
    settings.DJANGO_OUTBOX = {"SERIALIZER": f"{__name__}.in_a_format_of_its_own"}
    as_task(note).enqueue("a")
    assert run_all(outbox) == [True]


def in_a_format_of_its_own(value: object) -> bytes:
    """Be a setting SERIALIZER."""
    return b"\x80" + repr(value).encode()


def test_queues_are_topics(
    outbox: OutboxFixture, as_task: Any, settings: Settings
) -> None:
    as_task(note, queue_name="mail").enqueue("a")
    outbox.assert_stashed("tasks.mail")
    assert run_all(outbox, "mail") == [True]
    options = {"topic_prefix": "shop."}
    settings.TASKS = {"default": {"BACKEND": BACKEND, "OPTIONS": options}}
    as_task(anote).enqueue("a")
    outbox.assert_stashed("shop.default")


@pytest.mark.django_db(transaction=True)
def test_async_tasks_run(outbox: OutboxFixture, as_task: Any) -> None:
    as_task(anote).enqueue("a")
    assert run_all(outbox) == [True]
    assert Effect.objects.get().text == "a"


def test_a_task_may_take_its_context(outbox: OutboxFixture, as_task: Any) -> None:
    result = as_task(note_context, takes_context=True).enqueue("a")
    assert run_all(outbox) == [True]
    assert Effect.objects.get().text == f"a 1 {result.id}"


def test_times_can_be_compared_without_time_zones(
    outbox: OutboxFixture, as_task: Any, settings: Settings
) -> None:
    settings.USE_TZ = False
    as_task(note_wait, takes_context=True).enqueue()
    assert run_all(outbox) == [True]
    # In hours, minutes and seconds: not off by a time zone.
    assert Effect.objects.get().text.startswith("0:00:")


def test_a_date_without_a_time_zone_is_in_that_of_the_settings(
    outbox: OutboxFixture, as_task: Any, settings: Settings
) -> None:
    settings.USE_TZ = False
    settings.TIME_ZONE = "Europe/Berlin"
    with timezone.override("Asia/Tokyo"):
        as_task(note).using(
            run_after=datetime.fromisoformat("2999-01-01 12:00")
        ).enqueue("a")
    settings.USE_TZ = True
    assert StagedRecord.objects.get().not_before == datetime(2999, 1, 1, 11, tzinfo=UTC)


def test_run_after_is_a_date_of_the_message(
    outbox: OutboxFixture, as_task: Any
) -> None:
    later = timezone.now() + timedelta(hours=1)
    as_task(note).using(run_after=later).enqueue("a")
    (stashed,) = outbox.messages
    assert stashed.is_staged


def test_a_task_that_raises_leaves_nothing(outbox: OutboxFixture, as_task: Any) -> None:
    as_task(note).enqueue("a", fails=True)
    with pytest.raises(ZeroDivisionError):
        run_all(outbox)
    assert not Effect.objects.exists()


def test_signals_tell_of_each_step(
    outbox: OutboxFixture, as_task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django.tasks import signals

    seen: list[tuple[str, str]] = []

    def note_signal(signal: Any, task_result: Any, **_: Any) -> None:
        names = {signals.task_enqueued: "enqueued", signals.task_started: "started"}
        seen.append((names.get(signal, "finished"), task_result.status))

    for signal in (signals.task_enqueued, signals.task_started, signals.task_finished):
        monkeypatch.setattr(signal, "receivers", [])
        signal.connect(note_signal)
    as_task(note).enqueue("a")
    run_all(outbox)
    assert seen == [
        ("enqueued", "READY"),
        ("started", "RUNNING"),
        ("finished", "SUCCESSFUL"),
    ]


def test_arguments_that_json_cannot_express_are_refused_unseen(as_task: Any) -> None:
    with pytest.raises(InvalidMessage) as refused:
        as_task(note).enqueue(object())
    assert str(refused.value) == (
        f"task {__name__}.note: JSON cannot express its arguments; pass ids and plain "
        "values."
    )


def test_nothing_but_a_task_is_called(outbox: OutboxFixture) -> None:
    value = {"task": "os.getcwd", "args": [], "kwargs": {}}
    stash("tasks.default", key="1", value=value)
    with pytest.raises(ConsumingError, match=r"^os\.getcwd is no task"):
        run_all(outbox)


def test_a_queue_of_another_backend_is_refused(settings: Settings) -> None:
    from django_outbox.contrib.task_backend import run_queue

    immediate = "django.tasks.backends.immediate.ImmediateBackend"
    settings.TASKS = {"default": {"BACKEND": immediate}}
    with pytest.raises(ConfigurationError, match=r"is no OutboxTaskBackend"):
        run_queue(group="g")


def test_the_page_does_what_it_says(
    outbox: OutboxFixture, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf, shop_tasks, call, consumers = BLOCKS
    names: dict[str, Any] = {}
    exec(compile(conf, "django-tasks.md", "exec"), names)  # noqa: S102
    settings.TASKS = names["TASKS"]

    models = ModuleType("shop.models")
    vars(models)["Receipt"] = _Receipts()
    for name, module in (
        ("shop", ModuleType("shop")),
        ("shop.models", models),
        ("shop.tasks", ModuleType("shop.tasks")),
        ("shop.consumers", ModuleType("shop.consumers")),
    ):
        monkeypatch.setitem(sys.modules, name, module)
    for name, block in (("shop.tasks", shop_tasks), ("shop.consumers", consumers)):
        exec(compile(block, "django-tasks.md", "exec"), vars(sys.modules[name]))  # noqa: S102
    exec(compile(call, "django-tasks.md", "exec"), names)  # noqa: S102

    (message,) = outbox.drain()
    assert message.message_id == names["result"].id
    (subscription,) = handlers._subscriptions
    subscription.handle(message)
    assert Effect.objects.get().text == "4711"


class _Receipts:
    """The model of the page, whose rows are effects."""

    @property
    def objects(self) -> Any:
        return self

    def create(self, *, order: str) -> None:
        Effect.objects.create(text=order)
