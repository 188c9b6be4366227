"""`manage.py runharvester` as somebody sees it who looks at its terminal."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from ..processes import MANAGE
from ..terminals import Terminal
from .tables import OutboxTable

ELECTED = [sys.executable, str(MANAGE), "runharvester", "--name", "one"]
COMMAND = [*ELECTED, "--solo"]
"""Without an election, which takes seconds and shows nothing else."""

LOGGED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d (INFO|WARNING) \S")
"""How a row of the log begins, and only there."""

SUMMARY = re.compile(r"[\d,]+ records? in \d+\.\d s")


@pytest.fixture
def django(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of the example project."""
    return {**environment, "DJANGO_SETTINGS_MODULE": "config.settings"}


def assert_unmixed(rows: list[str]) -> None:
    """Each row is one line of the log; the live line stands alone and last."""
    *log, last = rows
    assert all(LOGGED.match(row) and len(LOGGED.findall(row)) == 1 for row in log), rows
    assert not any("●" in row for row in log), rows
    assert last.startswith("● ") or LOGGED.match(last) or SUMMARY.fullmatch(last), rows


def has_stopped(rows: list[str]) -> bool:
    """Whether the log says so; a singleton task may log its end after that."""
    return any(row.endswith(" INFO stopped") for row in rows)


def test_the_live_line_and_the_log_never_mix(
    django: dict[str, str], table: OutboxTable, topic: str
) -> None:
    # Wide enough for each warning of the doctor to be one row.
    with Terminal(ELECTED, django, columns=240) as terminal:
        assert_unmixed(terminal.wait_for("● leading"))
        table.insert(topic, "key", count=300)
        assert_unmixed(terminal.wait_for("records/s"))
        table.wait_until_empty()
        terminal.type(b"\x03")
        assert terminal.exit_code() == 0
        rows = terminal.rows
        assert_unmixed(rows)
        assert has_stopped(rows)
        assert "None" not in "\n".join(rows)
        assert terminal.has_cursor


def test_on_a_narrow_terminal_no_part_of_the_line_stays(
    django: dict[str, str], table: OutboxTable, topic: str
) -> None:
    """Not even when ^C is echoed behind it."""
    with Terminal(COMMAND, django, columns=60) as terminal:
        terminal.wait_for("● leading")
        table.insert(topic, "key", count=100)
        rows = terminal.wait_until(lambda rows: "records/s" in rows[-1])
        assert len([row for row in rows if "●" in row]) == 1
        terminal.type(b"\x03")
        assert terminal.exit_code() == 0
        assert "●" not in "\n".join(terminal.rows)


@pytest.mark.parametrize("columns", [60, 160])
def test_a_drain_ends_with_what_it_has_done(
    django: dict[str, str], table: OutboxTable, topic: str, columns: int
) -> None:
    table.insert(topic, "key", count=1_200)
    with table.connect() as blocker, ExitStack() as lock:
        # Without it, all may be done before the bar is drawn.
        lock.enter_context(blocker.transaction())
        blocker.execute(f'SELECT FROM "{table.name}" FOR UPDATE')
        with Terminal([*COMMAND, "--drain"], django, columns=columns) as terminal:
            terminal.wait_for(" of 1,200")
            lock.close()
            assert terminal.exit_code() == 0
            *log, summary = terminal.rows
            assert re.fullmatch(r"1,200 records in \d+\.\d s", summary)
            assert "●" not in "\n".join(log)
            assert "━" not in "\n".join(log)
            assert has_stopped(log)
            assert terminal.has_cursor


def test_a_drain_that_is_interrupted_says_what_is_left(
    django: dict[str, str], table: OutboxTable, topic: str
) -> None:
    table.insert(topic, "key", count=1)
    with table.connect() as blocker, blocker.transaction():
        blocker.execute(f'LOCK TABLE "{table.name}" IN ROW EXCLUSIVE MODE')
        blocker.execute(f'SELECT FROM "{table.name}" FOR UPDATE')
        with Terminal([*COMMAND, "--drain"], django) as terminal:
            terminal.wait_for(" of 1")
            terminal.wait_for("leader_acquired")
            terminal.type(b"\x03")
            assert terminal.exit_code() == 0
            rows = terminal.rows
    assert any(re.search(r"0 records in \d+\.\d s; 1 record left$", r) for r in rows), (
        rows
    )


def test_into_a_pipe_goes_the_summary_and_no_escape_code(
    django: dict[str, str], table: OutboxTable, topic: str
) -> None:
    table.insert(topic, "key", count=1)
    ran = _run("--drain", environment=django)
    assert re.fullmatch(r"1 record in \d+\.\d s\n", ran.stdout)
    assert all(LOGGED.match(line) for line in ran.stderr.splitlines())
    assert "\x1b" not in ran.stderr
    assert "None" not in ran.stderr


def test_as_json_the_summary_is_part_of_the_log(
    django: dict[str, str], table: OutboxTable, topic: str
) -> None:
    table.insert(topic, "key", count=2)
    ran = _run("--drain", "--log-format", "json", environment=django)
    events = [json.loads(line)["event"] for line in ran.stdout.splitlines()]
    assert events[-1] == "stopped"
    last = json.loads(ran.stderr.splitlines()[-1])
    assert re.fullmatch(r"2 records in \d+\.\d s", last["message"])


def test_without_colours_no_row_has_one(django: dict[str, str]) -> None:
    with Terminal(COMMAND, {**django, "NO_COLOR": "1"}) as terminal:
        terminal.wait_for("● leading")
        terminal.type(b"\x03")
        assert terminal.exit_code() == 0
    assert not re.search(rb"\x1b\[[0-9;]*3[0-9]m", terminal.raw)


def test_a_terminal_that_cannot_go_back_gets_the_log_alone(
    django: dict[str, str],
) -> None:
    with Terminal(COMMAND, django, term="dumb") as terminal:
        terminal.wait_for("leader_acquired")
        terminal.type(b"\x03")
        assert terminal.exit_code() == 0
    assert b"\x1b" not in terminal.raw
    assert "●" not in "\n".join(terminal.rows)


def test_a_log_that_is_sent_to_a_file_goes_there(
    django: dict[str, str], tmp_path: Path
) -> None:
    with (tmp_path / "log").open("wb") as log:
        with Terminal(COMMAND, django, stderr=log.fileno()) as terminal:
            terminal.wait_for("● leading")
            terminal.type(b"\x03")
            assert terminal.exit_code() == 0
        assert terminal.rows in ([], ["^C"])
    lines = (tmp_path / "log").read_text("utf-8").splitlines()
    assert all(LOGGED.match(line) for line in lines)
    assert has_stopped(lines)


LOGGING = """\
from config.settings import *

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"own": {"format": "own %(levelname)s %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "own"}},
    "root": {"handlers": ["console"], "level": "INFO"},
}
"""


def test_a_projects_own_handler_does_not_collide_with_the_line(
    django: dict[str, str], tmp_path: Path, table: OutboxTable, topic: str
) -> None:
    (tmp_path / "own_logging.py").write_text(LOGGING, "utf-8")
    environment = {
        **django,
        "DJANGO_SETTINGS_MODULE": "own_logging",
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(MANAGE.parent)]),
    }
    # Wide enough for each line of Celery's, and of the doctor's, to be one row.
    with Terminal(COMMAND, environment, columns=240) as terminal:
        terminal.wait_for("● leading")
        table.insert(topic, "key", count=100)
        rows = terminal.wait_for("records/s")
        assert [row for row in rows if "●" in row] == rows[-1:]
        terminal.type(b"\x03")
        assert terminal.exit_code() == 0
        rows = terminal.rows
    assert all(row.startswith("own ") and row.count("own ") == 1 for row in rows), rows
    assert rows[-1] == "own INFO stopped"


def _run(
    *arguments: str, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        env=dict(environment),
        capture_output=True,
        text=True,
        check=True,
        timeout=180,
    )
