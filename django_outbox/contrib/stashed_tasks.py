"""
Celery tasks that are sent if a transaction commits, and only then.

`stash_task()` stashes the task as a message; the consumer that `run_tasks()` declares
sends it to Celery's broker. The id of the task is the message id, so that a task that
is sent twice, after a crash, has the same id both times.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from celery import Signature
from celery.app import app_or_default
from kombu.utils.json import dumps, loads

from ..consuming.handlers import consumer
from ..exceptions import InvalidMessage
from ..message.incoming import ConsumedMessage
from ..stashing.writing import stash
from .broker_confirms import require_confirms


def stash_task(
    topic: str, task: Signature, *, key: str | None = None, using: str | None = None
) -> uuid.UUID:
    """
    Stash a Celery task, which is sent to Celery's broker if the transaction commits.

        stash_task("tasks", send_receipt.s(order.pk).set(queue="mail"))

    Args:
        topic: The Kafka topic, that of a `run_tasks()`.
        task: The signature of one task. Its arguments and options become JSON, as
            with Celery's own serializer of that name; times such as a countdown
            count from the moment at which the consumer sends the task.
        key: Tasks with one key are sent to Celery one after the other; by default
            each has a key of its own.
        using: As in `stash()`, like the errors.

    Returns:
        The message id, which becomes the id of the task.

    Raises:
        InvalidMessage: It is no signature of one task, or JSON cannot express it.
    """
    # Chains and groups are signatures of other types.
    if type(task) is not Signature:
        raise InvalidMessage(
            f"task: must be the signature of one task, not {type(task).__name__}; pass "
            "task.s(...). Let a task start those that follow it."
        )
    sent = {name: task[name] for name in ("task", "args", "kwargs", "options")}
    try:
        value = dumps(sent, allow_nan=False)
    except (TypeError, ValueError) as error:
        # The original error may show a value.
        raise InvalidMessage(
            f"task {task.task}: JSON cannot express its arguments or options; pass ids "
            "and plain values."
        ) from error
    return stash(topic, key=key or str(uuid.uuid4()), value=value, using=using)


def run_tasks(*topics: str, group: str) -> Callable[[ConsumedMessage], None]:
    """
    Declare the consumer that sends stashed tasks to Celery; return its handler.

    Call it in the module `consumers` of an app, where Celery's app exists already.
    A task that this project does not have fails, and is not sent.

    Args:
        topics: The topics of `stash_task()`.
        group: The consumer group.

    Raises:
        ConfigurationError: Celery's broker would not tell whether it got a task.
    """
    # Looked up now: there is no current app on another thread.
    app = app_or_default()
    require_confirms(app)

    def send(message: ConsumedMessage) -> None:
        sent = loads(message.text())
        options = {**sent["options"], "task_id": message.identity}
        _find(app, sent["task"]).apply_async(sent["args"], sent["kwargs"], **options)

    return consumer(*topics, group=group)(send)


def _find(app: Any, name: str) -> Any:
    if name not in app.tasks:
        # Only a worker has imported them all.
        app.loader.import_default_modules()
    return app.tasks[name]
