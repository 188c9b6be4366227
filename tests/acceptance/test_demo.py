"""The demonstration, as a stranger starts it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from django_outbox.devstack import bootstrap
from django_outbox.devstack.service import DevstackError
from django_outbox.devstack.waiting import wait_while_moving
from django_outbox.jars.find_java import find_java

from ..machine import do_without, nightly
from ..processes import Process

DEMO = Path(__file__).parents[2] / "example_project" / "demo.py"
SMALL = ("--seconds", "3", "--rate", "20", "--no-lake")


@pytest.fixture
def elsewhere() -> Iterator[dict[str, str]]:
    """An environment without this session's services, with a folder of its own."""
    if Path(
        sys.prefix
    ).resolve() != bootstrap.ENVIRONMENT.resolve() or not bootstrap.is_complete("demo"):
        pytest.skip("the demonstration would install an environment")
    try:
        find_java()
    except DevstackError as error:
        do_without(str(error))
    of_tests = ("DATABASE_URL", "KAFKA_BOOTSTRAP_SERVERS", "OUTBOX_")
    with tempfile.TemporaryDirectory() as temporary:
        # Under root another user's Postgres works in there.
        Path(temporary).chmod(0o755)
        yield {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(of_tests)
        } | {"DEVSTACK_SOURCES": "embedded", "TMPDIR": temporary}


def test_the_first_act_ends_with_a_table_of_kept_promises(
    elsewhere: dict[str, str],
) -> None:
    done = subprocess.run(
        [sys.executable, str(DEMO), *SMALL],
        env=elsewhere,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    table = {
        cells[0].strip(): [cell.strip() for cell in cells[1:3]]
        for line in done.stdout.splitlines()
        if len(cells := line.strip("│").split("│")) == 3
    }
    assert int(table["orders placed"][0]) > 0
    assert table["lost"] == ["0", "yes"]
    assert table["out of order"] == ["0", "yes"]
    assert table["orders that billing has charged once"] == [
        table["orders placed"][0],
        "yes",
    ]
    assert "Act 2" not in done.stdout
    assert not list(Path(elsewhere["TMPDIR"]).iterdir())


@nightly
def test_an_end_in_the_middle_leaves_nothing_running(elsewhere: dict[str, str]) -> None:
    command = [sys.executable, str(DEMO), "--seconds", "600", "--no-lake"]
    with Process("demo", command, elsewhere) as demo:
        demo.wait_for_output("leads", timeout=180)
        started = psutil.Process(demo.pid).children(recursive=True)
        assert len(started) > 4
        # As Ctrl-C does, which may be ignored where tests are started.
        demo.terminate()
        assert demo.exit_code() == 130
        assert "Traceback" not in (said := "\n".join(demo.log))
        assert "Nothing is left running" in said
    wait_while_moving(
        lambda: not any(process.is_running() for process in started),
        what="all processes to end",
    )
    assert not list(Path(elsewhere["TMPDIR"]).iterdir())
