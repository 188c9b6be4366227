"""The pipeline as leader tasks: one run at a time, on any worker."""

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
AUDIT: Final = ("audit", "--max-copies", "1000", "--max-behind-age", "1h")
MAINTAIN: Final = ("maintain",)

POLL_INTERVAL: Final = 2.0
"""Seconds between two checks of the process."""


@leader_task(Leadership.objects, interval=settings.LAKE_INTERVAL)
def load_records(run: LeaderRun) -> None:
    """Load new records of the topics into the tables."""
    pipeline(run, RUN)


@leader_task(Leadership.objects, interval=86_400.0)
def maintain_and_audit(run: LeaderRun) -> None:
    """Maintain the tables, and compare database, topics and lake."""
    # The audit is last, because a finding raises an error.
    pipeline(run, MAINTAIN)
    pipeline(run, AUDIT)


def pipeline(run: LeaderRun, arguments: Sequence[str]) -> None:
    """
    Run a command of the pipeline as one unit: units of leaders never overlap.

    Spark runs in a separate process. If the unit has to end, SIGTERM lets the
    process finish its current batch.

    Raises:
        CalledProcessError: the exit code is not 0; Celery reports it.
        DatabaseError: this worker has lost its transaction, and so the leadership.
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
        process.wait(POLL_INTERVAL)
    except subprocess.TimeoutExpired:
        return
