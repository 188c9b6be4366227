"""The context of a request on Celery tasks, with a worker and its broker in memory."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, current_app, signals
from celery.contrib.testing.worker import start_worker

from django_outbox.contrib import celery_context, context

PAGE = (Path(__file__).parents[2] / "docs/howto/middleware.md").read_text("utf-8")
(BLOCK,) = re.findall(r"```python\n(# config/celery.py.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def celery(monkeypatch: pytest.MonkeyPatch) -> Iterator[Celery]:
    """The project's app, which does what the page says."""
    for name in ("before_task_publish", "task_prerun", "task_postrun"):
        signal = getattr(signals, name)
        monkeypatch.setattr(signal, "receivers", [*signal.receivers])
    previous = current_app._get_current_object()
    app = Celery("tests", broker=f"memory://{uuid.uuid4()}", backend="cache+memory://")
    app.conf.task_default_queue = uuid.uuid4().hex
    exec(compile(BLOCK, "middleware.md", "exec"), {})  # noqa: S102
    yield app
    app.close()
    previous.set_current()


@pytest.fixture
def look(celery: Celery) -> Any:
    """A task that returns its context, and that of a task which it starts."""

    def look(self: Any, depth: int) -> list[dict[str, str]]:
        found = dict(context.current())
        if depth == 0:
            return [found]
        child = self.apply_async([depth - 1])
        return [found, *child.get(timeout=60, disable_sync_subtasks=False)]

    return celery.task(bind=True, name="look", shared=False)(look)


@pytest.fixture
def worker(celery: Celery, look: Any) -> Iterator[None]:
    """Runs what is sent, two tasks at a time, one of which may wait for the other."""
    with start_worker(
        celery, pool="threads", concurrency=2, perform_ping_check=False, loglevel="INFO"
    ):
        yield


@pytest.mark.usefixtures("worker")
def test_a_task_has_the_context_of_its_sender_and_passes_it_on(look: Any) -> None:
    with context.bound(correlation_id="c-1", tenant="acme"):
        sent = look.delay(1)
    assert sent.get(timeout=60) == [{"correlation_id": "c-1", "tenant": "acme"}] * 2


@pytest.mark.usefixtures("worker")
def test_the_next_task_of_a_worker_has_none_of_it(look: Any) -> None:
    with context.bound(correlation_id="c-1"):
        first = [look.delay(0) for _ in range(4)]
    assert [task.get(timeout=60) for task in first] == [[{"correlation_id": "c-1"}]] * 4
    second = [look.delay(0) for _ in range(4)]
    assert [task.get(timeout=60) for task in second] == [[{}]] * 4


@pytest.mark.usefixtures("worker")
def test_what_is_no_context_is_left_out(look: Any) -> None:
    values = {"tenant": "a\nb", "Name": "x", "number": 1, "good": "y"}
    sent = look.apply_async([0], headers={celery_context.HEADER: values})
    assert sent.get(timeout=60) == [{"good": "y"}]


def test_an_eager_task_runs_in_the_context_of_its_caller(
    celery: Celery, look: Any
) -> None:
    celery.conf.task_always_eager = True
    with context.bound(correlation_id="c-1"):
        assert look.delay(1).get() == [{"correlation_id": "c-1"}] * 2
        assert context.current() == {"correlation_id": "c-1"}
