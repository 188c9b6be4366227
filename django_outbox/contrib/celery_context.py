"""
The context of a request on Celery tasks: who starts a task passes it on.

Call `carry_context()` where the Celery app is made, in the module that both the web
server and the worker import. A task has the context of the code that has sent it, also
for the messages that it stashes and the tasks that it sends itself.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Final

from celery import Task
from celery.signals import before_task_publish, task_postrun, task_prerun

from . import context

HEADER: Final = "outbox_context"
"""Header of a task, with names and values."""

_BOUND: Final = "_outbox_context_bound"
"""Where a running task keeps what ends its context."""


def carry_context() -> None:
    """Let tasks carry the context from now on; calling it twice is harmless."""
    for signal, receiver in (
        (before_task_publish, _publish),
        (task_prerun, _begin),
        (task_postrun, _end),
    ):
        signal.connect(receiver, weak=False, dispatch_uid=HEADER)


def _publish(*, headers: dict[str, Any] | None = None, **_: Any) -> None:
    # Only the second version of Celery's message protocol has headers.
    if headers is not None and context.current():
        headers[HEADER] = dict(context.current())


def _begin(*, task: Task, **_: Any) -> None:
    values = getattr(task.request, HEADER, None)
    if not isinstance(values, dict):
        # An eager task runs in the context of its caller.
        return
    binding = context.received(values)
    binding.__enter__()
    setattr(task.request, _BOUND, binding)


def _end(*, task: Task, **_: Any) -> None:
    binding: AbstractContextManager[None] | None = getattr(task.request, _BOUND, None)
    if binding is not None:
        binding.__exit__(None, None, None)
