"""
A periodic Celery task that runs in one process at a time: the leader's.

    @leader_task(Leadership.objects, interval=5.0)
    def invoice_run(run: LeaderRun) -> None:
        while True:
            with run.unit():
                ...  # one transaction, fenced by the leader id

The harvester's process sends the task while it leads, with the leader id as its
argument. Any worker may run it, unit by unit; each unit checks the leader id in its
own transaction. See docs/howto/singleton-tasks.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeAlias

from celery.app import app_or_default

from .fencing import UnitRefused
from .singleton import Fence, LeaderRun, Singleton

logger = logging.getLogger(__name__)

Work: TypeAlias = Callable[[LeaderRun], None]


def leader_task(
    fence: Fence,
    *,
    interval: float,
    name: str | None = None,
    shard: int = 0,
    **options: Any,
) -> Callable[[Work], Any]:
    """
    Make a function a Celery task that only the leader's process sends.

    The Celery app must exist when this runs, as in Celery's own Django guide,
    and the harvester must import the module: from `AppConfig.ready()`.

    Args:
        fence: the manager of your subclass of `Leadership`.
        interval: seconds between two runs; a worker drops a run that it has not
            begun within this time.
        name: of the task and of its row; the function's dotted path if None, and the
            shard behind it, unless it is 0.
        shard: whose leader sends it, where there are several.
        options: for `Celery.task`, such as `rate_limit`.

    Returns:
        A decorator; what it returns is the Celery task.

    Raises:
        ConfigurationError: `interval` is not a number of seconds above 0, or `shard`
            is not one from 0.
    """

    def decorate(work: Work) -> Any:
        # Looked up now: there is no current app on the thread of a beat.
        app = app_or_default()
        path = app.gen_task_name(work.__name__, work.__module__)
        task_name = name or (f"{path}-{shard}" if shard else path)

        def run(leader_id: str) -> None:
            try:
                work(LeaderRun(fence, name=task_name, leader_id=leader_id))
            except UnitRefused:
                logger.info(
                    "Run of %s ended: another process leads, or runs a unit",
                    task_name,
                    extra={"action": "leader_task", "leader_id": leader_id},
                )

        def send(leader_id: str) -> None:
            task.apply_async(kwargs={"leader_id": leader_id}, expires=interval)

        singleton = Singleton(
            fence, send, name=task_name, interval=interval, shard=shard
        )
        run.__doc__, run.__module__ = work.__doc__, work.__module__
        run.__name__, run.__qualname__ = work.__name__, work.__qualname__
        task = app.task(name=task_name, ignore_result=True, **options)(run)
        singleton.connect()
        return task

    return decorate
