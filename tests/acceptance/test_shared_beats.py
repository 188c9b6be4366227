"""Two processes of Celery beat on one schedule, one of which is killed."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid5

import pytest

from ..processes import ROOT, Process, Processes
from ..waiting import eventually

NAMESPACE = UUID("0f0b5d1c-3c0e-4d53-8d8c-0d2a5f0c6a3e")
"""Of the ids of tasks; it must never change."""

APP = """\
from pathlib import Path

import django
from celery import Celery

django.setup()
box = Path(__file__).with_name("box")
box.mkdir(exist_ok=True)
app = Celery("tests", broker="filesystem://")
app.conf.update(
    broker_transport_options={
        "data_folder_in": str(box),
        "data_folder_out": str(box),
        "control_folder": str(box / "control"),
    },
    beat_schedule={"sync": {"task": "shop.sync", "schedule": 1.0}},
)
"""


@pytest.fixture
def beats(environment: dict[str, str], tmp_path: Path) -> Iterator[list[Process]]:
    """Two of them, with Celery's broker in a folder."""
    (tmp_path / "beating.py").write_text(APP, "utf-8")
    path = f"{tmp_path}:{ROOT / 'example_project'}:{ROOT}"
    variables = {"DJANGO_SETTINGS_MODULE": "config.settings", "PYTHONPATH": path}
    scheduler = "django_outbox.contrib.shared_beat:SharedScheduler"
    with Processes({**environment, **variables}) as processes:
        for number in range(2):
            options = ("--pidfile", "", "--loglevel", "INFO", "--scheduler", scheduler)
            processes.launch(
                f"beat-{number}",
                *(sys.executable, "-m", "celery", "-A", "beating", "beat", *options),
            )
        yield processes.all


def sent(box: Path) -> list[str]:
    """The ids of the tasks that the broker has."""
    found = []
    for path in box.glob("*.msg"):
        # One may just be written, or its writer may have died meanwhile.
        with suppress(ValueError):
            found.append(json.loads(path.read_text("utf-8"))["headers"]["id"])
    return found


def test_a_process_that_dies_repeats_one_task_at_most(
    beats: list[Process], tmp_path: Path
) -> None:
    box = tmp_path / "box"
    begun = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=6)
    for beat in beats:
        beat.wait_for_log("Sent sync, due at")
    eventually(lambda: len(sent(box)) >= 5, what=lambda: f"{sent(box)}")
    killed, survivor = beats
    killed.signal(signal.SIGKILL)
    killed.exit_code()
    count = len(sent(box))
    eventually(lambda: len(sent(box)) >= count + 5, what=lambda: f"{sent(box)}")
    survivor.terminate()
    survivor.exit_code()

    ids = sent(box)
    # Once each, but for the one task whose claim the killed process had not committed.
    assert len(ids) - len({*ids}) <= 1
    moments = [begun + timedelta(seconds=second) for second in range(1000)]
    due = {str(uuid5(NAMESPACE, f"sync@{moment.isoformat()}")) for moment in moments}
    assert {*ids} <= due
