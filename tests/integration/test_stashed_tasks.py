"""Celery tasks that a transaction starts, with Celery's broker in memory."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, chain, current_app, group
from celery.exceptions import NotRegistered
from django.db import transaction
from kombu.utils.json import loads

from django_outbox import ConsumedMessage, InvalidMessage, NotInTransaction, once
from django_outbox.consuming import handlers
from django_outbox.contrib.stashed_tasks import run_tasks, stash_task
from django_outbox.exceptions import ConfigurationError
from django_outbox.models import OutboxRecord

PAGE = (Path(__file__).parents[2] / "docs/howto/stashed-tasks.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)

Handle = Callable[[ConsumedMessage], None]


@pytest.fixture
def celery(monkeypatch: pytest.MonkeyPatch) -> Iterator[Celery]:
    """The project's app, and no consumers but those of the test."""
    monkeypatch.setattr(handlers, "_subscriptions", [])
    previous = current_app._get_current_object()
    app = Celery("tests", broker=f"memory://{uuid.uuid4()}")
    app.conf.task_default_queue = uuid.uuid4().hex
    yield app
    app.close()
    previous.set_current()


@pytest.fixture
def receipt(celery: Celery) -> Any:
    def receipt(number: str, **details: Any) -> None: ...

    celery.conf.task_routes = {"shop.receipt": {"queue": "own"}}
    return celery.task(name="shop.receipt", shared=False)(receipt)


def test_a_broker_that_does_not_confirm_is_refused(celery: Celery) -> None:
    """A task that it never got would count as sent."""
    celery.conf.broker_url = "amqp://guest@nowhere//"
    with pytest.raises(ConfigurationError, match="'confirm_publish' to True"):
        run_tasks("tasks", group="celery")
    celery.conf.broker_transport_options = {"confirm_publish": True}
    run_tasks("tasks", group="celery")


def message() -> ConsumedMessage:
    """The only message in the outbox, as a consumer gets it."""
    row = OutboxRecord.objects.get()
    return ConsumedMessage(
        topic=row.kafka_topic,
        key=row.kafka_key.encode(),
        value=(row.kafka_value or "").encode(),
        headers=(("outbox-message-id", str(row.message_id).encode()),),
    )


def sent(app: Celery, queue: str) -> list[tuple[str, str, Any, Any]]:
    """Id, name, args and kwargs of what is in a queue of the broker."""
    found = []
    with app.connection_for_read() as connection, connection.SimpleQueue(queue) as box:
        while box.qsize():
            letter = box.get(timeout=1)
            args, kwargs, _ = loads(letter.body)
            found.append((letter.headers["id"], letter.headers["task"], args, kwargs))
            letter.ack()
    return found


@pytest.mark.django_db
def test_a_stashed_task_is_sent_under_its_message_id(
    celery: Celery, receipt: Any
) -> None:
    task_id = stash_task("tasks", receipt.s("4711", copies=2))
    run_tasks("tasks", group="celery")(message())
    assert sent(celery, "own") == [
        (str(task_id), "shop.receipt", ["4711"], {"copies": 2})
    ]


@pytest.mark.django_db
def test_a_repeat_has_the_same_id_and_once_skips_it(
    celery: Celery, receipt: Any
) -> None:
    stash_task("tasks", receipt.s("4711").set(task_id="another"))
    handle = run_tasks("tasks", group="celery")
    with pytest.raises(ZeroDivisionError):
        deliver(handle, dies=True)
    deliver(handle)
    deliver(handle)
    (first, *_), (second, *_) = sent(celery, "own")
    assert first == second == str(OutboxRecord.objects.get().message_id)


def deliver(handle: Handle, *, dies: bool = False) -> None:
    """As `runconsumer` does, which may die before the commit."""
    with once(message(), consumer="celery") as run:
        if run.is_first:
            handle(message())
        if dies:
            raise ZeroDivisionError


@pytest.mark.django_db
def test_options_and_arguments_arrive_as_they_were(
    celery: Celery, receipt: Any
) -> None:
    moment, due = datetime(2040, 1, 1, tzinfo=UTC), Decimal("1.50")
    one = uuid.uuid4()
    stash_task("tasks", receipt.s("4711", due=due, one=one).set(queue="q", eta=moment))
    run_tasks("tasks", group="celery")(message())
    ((_, _, args, kwargs),) = sent(celery, "q")
    assert (args, kwargs) == (["4711"], {"due": due, "one": one})


@pytest.mark.django_db(transaction=True)
def test_a_rollback_takes_the_task_back(receipt: Any) -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        stash_task("tasks", receipt.s("4711"))
        raise ZeroDivisionError
    with pytest.raises(NotInTransaction):
        stash_task("tasks", receipt.s("4711"))
    assert not OutboxRecord.objects.exists()


@pytest.mark.django_db
def test_each_task_has_a_key_of_its_own_unless_it_shares_one(receipt: Any) -> None:
    for key in (None, None, "order-1"):
        stash_task("tasks", receipt.s("4711"), key=key)
    first, second, third = OutboxRecord.objects.order_by("id")
    assert first.kafka_key != second.kafka_key
    assert third.kafka_key == "order-1"


@pytest.mark.django_db
@pytest.mark.parametrize(
    "make",
    [
        lambda task: task,
        lambda task: chain(task.s("1"), task.si("2")),
        lambda task: group(task.s("1"), task.s("2")),
    ],
)
def test_only_the_signature_of_one_task_will_do(
    receipt: Any, make: Callable[[Any], Any]
) -> None:
    with pytest.raises(InvalidMessage, match=r"must be the signature of one task"):
        stash_task("tasks", make(receipt))


@pytest.mark.django_db
@pytest.mark.parametrize("argument", [object(), float("nan"), {1, 2}])
def test_what_json_cannot_express_is_refused(receipt: Any, argument: Any) -> None:
    with pytest.raises(InvalidMessage, match=r"task shop\.receipt: JSON cannot"):
        stash_task("tasks", receipt.s(argument))
    assert not OutboxRecord.objects.exists()


@pytest.mark.django_db
def test_a_task_that_the_project_does_not_have_is_not_sent(
    celery: Celery, receipt: Any
) -> None:
    stash_task("tasks", receipt.s("4711"))
    handle = run_tasks("tasks", group="celery")
    del celery.tasks["shop.receipt"]
    with pytest.raises(NotRegistered):
        handle(message())
    assert sent(celery, "own") == []


@pytest.mark.django_db
def test_a_task_that_only_workers_have_imported_is_imported(
    celery: Celery, receipt: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stash_task("tasks", receipt.s("4711"))
    task = celery.tasks.pop("shop.receipt")
    monkeypatch.setattr(
        celery.loader, "import_default_modules", lambda: celery.tasks.register(task)
    )
    run_tasks("tasks", group="celery")(message())
    assert len(sent(celery, "own")) == 1


@pytest.mark.django_db
def test_an_eager_task_runs_in_the_consumers_transaction(celery: Celery) -> None:
    celery.conf.task_always_eager = True
    seen: list[tuple[str, str]] = []

    def note(self: Any, number: str) -> None:
        seen.append((self.request.id, number))

    task = celery.task(name="shop.note", bind=True, shared=False)(note)
    task_id = stash_task("tasks", task.s("4711"))
    run_tasks("tasks", group="celery")(message())
    assert seen == [(str(task_id), "4711")]


def test_the_consumer_is_declared(celery: Celery) -> None:
    run_tasks("tasks", "more-tasks", group="celery")
    (subscription,) = handlers._subscriptions
    assert subscription.topics == ("tasks", "more-tasks")
    assert subscription.group == "celery"


@pytest.mark.django_db(transaction=True)
def test_the_page_does_what_it_says(celery: Celery) -> None:
    names: dict[str, Any] = {"__name__": "tests.examples"}
    for number, block in enumerate(BLOCKS):
        exec(compile(block, f"block {number} of stashed-tasks.md", "exec"), names)  # noqa: S102
    (subscription,) = handlers._subscriptions
    subscription.handle(message())
    assert sent(celery, "mail") == [
        (str(names["task_id"]), "tests.examples.send_receipt", ["4711"], {})
    ]
