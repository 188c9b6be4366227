"""
A backend for `django.tasks` of Django 6.0 and later: tasks commit with your rows.

    TASKS = {
        "default": {"BACKEND": "django_outbox.contrib.task_backend.OutboxTaskBackend"}
    }

Each queue is a topic. `enqueue()` stashes the task as a message in the transaction that
is open; the consumer that `run_queue()` declares runs it, once, in the transaction that
also notes that it has run.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable
from contextlib import nullcontext
from datetime import datetime
from typing import Any, Final

from django.db import connections, transaction
from django.tasks import Task, TaskContext, TaskResult, TaskResultStatus, task_backends
from django.tasks.backends.base import BaseTaskBackend
from django.tasks.signals import task_enqueued, task_finished, task_started
from django.utils import timezone
from django.utils.module_loading import import_string

from ..conf import settings
from ..consuming.handlers import consumer
from ..exceptions import ConfigurationError, ConsumingError, InvalidMessage
from ..message.incoming import ConsumedMessage
from ..models.routing import outbox_database
from ..stashing.writing import stash, stash_delayed, to_json

PREFIX: Final = "tasks."
"""Of the topics, by default: the queue `mail` is in the topic `tasks.mail`."""

_OPTION: Final = "topic_prefix"


class OutboxTaskBackend(BaseTaskBackend):
    """
    Enqueues tasks in the transaction that is open, or in one of their own.

    Its only option is `topic_prefix`. Results are not kept: an effect of a task is
    what its transaction has written.

    Raises:
        ConfigurationError: OPTIONS has another key, or the prefix is not text.
    """

    supports_defer = True
    supports_async_task = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        for name, value in self.options.items():
            if name != _OPTION:
                raise ConfigurationError(
                    f"TASKS[{alias!r}]: there is no {name!r} in OPTIONS; the only "
                    f"option is {_OPTION!r}."
                )
            if not isinstance(value, str):
                raise ConfigurationError(
                    f"TASKS[{alias!r}]: {name}={value!r} must be a str, for instance "
                    f"{PREFIX!r}."
                )

    def enqueue(self, task: Task[..., Any], args: Any, kwargs: Any) -> Any:
        """
        Stash a task; return its result, whose id is the message id.

        Raises:
            InvalidTask: the task asks for a priority, or for a queue not in QUEUES.
            InvalidMessage: JSON cannot express its arguments, or it breaks a limit.
            NotInTransaction: a transaction is open, but on another database.
        """
        self.validate_task(task)
        try:
            result = _result(task, args, kwargs, backend=self.alias)
            # Not by the project's SERIALIZER: run_queue() reads JSON.
            value = to_json(
                {
                    "task": task.module_path,
                    "args": result.args,
                    "kwargs": result.kwargs,
                }
            )
        except (TypeError, ValueError) as error:
            # The original error may show a value.
            raise InvalidMessage(
                f"task {task.module_path}: JSON cannot express its arguments; pass ids "
                "and plain values."
            ) from error
        # Beside a transaction on another database, stash() refuses.
        is_open = any(c.in_atomic_block for c in connections.all(initialized_only=True))
        own = transaction.atomic(using=outbox_database(settings.DATABASE))
        with nullcontext() if is_open else own:
            message_id = _stash(
                self.topic(task.queue_name), value, not_before=task.run_after
            )
        result = dataclasses.replace(
            result, id=str(message_id), enqueued_at=timezone.now()
        )
        task_enqueued.send(type(self), task_result=result)
        return result

    def topic(self, queue: str) -> str:
        """Return the topic of a queue."""
        return f"{self.options.get(_OPTION, PREFIX)}{queue}"


def run_queue(
    queue: str = "default", *, group: str, backend: str = "default"
) -> Callable[[ConsumedMessage], None]:
    """
    Declare the consumer that runs the tasks of a queue; return its handler.

    Call it in the module `consumers` of an app. A task that raises is tried again, and
    then goes to the dead letter topic, like any message. Only functions that are
    decorated with `@task` run.

    Args:
        queue: One of the backend's queues.
        group: The consumer group.
        backend: Its alias in TASKS.

    Raises:
        ConfigurationError: This alias is no `OutboxTaskBackend`, or the queue is not
            one of its QUEUES.
    """
    found = task_backends[backend]
    if not isinstance(found, OutboxTaskBackend):
        raise ConfigurationError(
            f"run_queue(): TASKS[{backend!r}] is no OutboxTaskBackend; set its BACKEND "
            f"to {OutboxTaskBackend.__module__}.OutboxTaskBackend."
        )
    # An empty list allows every queue.
    if found.queues and queue not in found.queues:
        known = ", ".join(map(repr, sorted(found.queues)))
        raise ConfigurationError(
            f"run_queue(): {queue!r} is not in QUEUES of TASKS[{backend!r}]; use one "
            f"of {known}, or add it there."
        )

    def run(message: ConsumedMessage) -> None:
        sent = message.json()
        task = _task(sent["task"])
        now = timezone.now()
        result = dataclasses.replace(
            _result(task, sent["args"], sent["kwargs"], backend=backend),
            id=message.identity,
            status=TaskResultStatus.RUNNING,
            enqueued_at=_enqueued_at(message, now),
            started_at=now,
            last_attempted_at=now,
            worker_ids=[group],
        )
        task_started.send(OutboxTaskBackend, task_result=result)
        context = [TaskContext(task_result=result)] if task.takes_context else []
        task.call(*context, *result.args, **result.kwargs)
        result = dataclasses.replace(
            result, status=TaskResultStatus.SUCCESSFUL, finished_at=timezone.now()
        )
        task_finished.send(OutboxTaskBackend, task_result=result)

    return consumer(found.topic(queue), group=group)(run)


def _enqueued_at(message: ConsumedMessage, now: datetime) -> datetime | None:
    """Return when a task was enqueued, without a time zone if `now` has none."""
    created_at = message.created_at
    if created_at is None or timezone.is_aware(now):
        return created_at
    return timezone.make_naive(created_at, timezone.get_default_timezone())


def _stash(topic: str, value: str, *, not_before: datetime | None) -> uuid.UUID:
    key = str(uuid.uuid4())
    if not_before is None:
        return stash(topic, key=key, value=value)
    if timezone.is_naive(not_before):
        zone = timezone.get_default_timezone()
        not_before = timezone.make_aware(not_before, zone)
    return stash_delayed(topic, key=key, value=value, not_before=not_before)


def _result(
    task: Task[..., Any], args: Any, kwargs: Any, *, backend: str
) -> TaskResult[..., Any]:
    return TaskResult(
        task=task,
        id="",
        status=TaskResultStatus.READY,
        enqueued_at=None,
        started_at=None,
        finished_at=None,
        last_attempted_at=None,
        args=args,
        kwargs=kwargs,
        backend=backend,
        errors=[],
        worker_ids=[],
    )


def _task(path: str) -> Task[..., Any]:
    # Everybody who may write to the topic chooses the path: call tasks only.
    found = import_string(path)
    if not isinstance(found, Task):
        raise ConsumingError(f"{path} is no task: decorate it with @task.")
    return found
