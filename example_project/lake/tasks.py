"""The pipeline from the leader: one at a time, whoever leads, on any worker."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import Final

from billing.models import Leadership
from django.conf import settings

from django_outbox.contrib.celery import leader_task
from django_outbox.contrib.singleton import LeaderRun

RUN: Final = ("run", "--once")
AUDIT: Final = ("audit", "--max-copies", "1000")
MAINTAIN: Final = ("maintain",)

LOOK: Final = 2.0
"""Seconds between two looks at the process."""


@leader_task(Leadership.objects, interval=settings.LAKE_INTERVAL)
def bring_news(run: LeaderRun) -> None:
    """Bring what the topics hold into the tables."""
    pipeline(run, RUN)


@leader_task(Leadership.objects, interval=86_400.0)
def look_after(run: LeaderRun) -> None:
    """Keep the tables in shape, and compare database, topics and lake."""
    # Last, since what it finds is an error.
    pipeline(run, MAINTAIN)
    pipeline(run, AUDIT)


def pipeline(run: LeaderRun, arguments: Sequence[str]) -> None:
    """
    Run a command of the pipeline as one unit: no other leader's may overlap.

    Spark has a process of its own, which ends with its Java. When the unit may
    not go on, SIGTERM lets it finish the batch at hand.

    Raises:
        CalledProcessError: the exit code is not 0; Celery tells of it.
        DatabaseError: this worker has lost its transaction, and so its right.
    """
    command = [sys.executable, str(settings.BASE_DIR / "manage.py"), "outbox_pipeline"]
    with run.unit(), subprocess.Popen([*command, *arguments]) as process:
        try:
            while process.poll() is None:
                # PostgreSQL ends a unit that sends no statement for `idle_timeout`.
                Leadership.objects.exists()
                _wait(process)
        finally:
            process.terminate()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args)


def _wait(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(LOOK)
    except subprocess.TimeoutExpired:
        return
