"""`manage.py outbox top` and its question as somebody sees them on a terminal."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from queue import Empty, Queue
from threading import Thread

import pytest

from ..processes import MANAGE
from ..terminals import Terminal
from ..waiting import eventually
from .harvesters import Harvesters
from .tables import OutboxTable

OUTBOX = [sys.executable, str(MANAGE), "outbox"]
TOP = [*OUTBOX, "top", "--interval", "0.5"]


@pytest.fixture
def blocked(harvesters: Harvesters, table: OutboxTable, topic: str) -> int:
    """A leader, and a record that it cannot deliver."""
    harvesters.start(name="one").wait_for("leader_acquired")
    (number,) = table.insert(topic, "customer-1", partition=99)
    eventually(lambda: table.count("attempts > 0"))
    return number


@pytest.mark.parametrize("columns", [50, 120])
def test_top_shows_leader_figures_and_what_blocks(
    environment: Mapping[str, str], blocked: int, columns: int
) -> None:
    with Terminal(TOP, environment, columns=columns) as terminal:
        parts = ("leader   one", "records/s", "backlog  1 record", str(blocked))
        # A screen is drawn in pieces, and the error is the last one.
        rows = terminal.wait_until(
            lambda rows: all(
                part in "\n".join(rows) for part in (*parts, "_UNKNOWN_PARTITION")
            )
        )
        shown = "\n".join(rows)
        assert ("▁" in shown or "█" in shown) == (columns > 70)
        # It is redrawn in place.
        assert len([row for row in rows if row.startswith("leader ")]) == 1
        terminal.type(b"\x03")
        assert terminal.exit_code() == 0
        assert terminal.has_cursor
        assert "Traceback" not in "\n".join(terminal.rows)


def test_tail_brings_each_record_through_a_pipe_at_once(
    environment: Mapping[str, str], table: OutboxTable, topic: str
) -> None:
    environment = {**environment}
    environment.pop("PYTHONUNBUFFERED", None)
    with subprocess.Popen(
        [*OUTBOX, "tail"], stdout=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout is not None
        lines: Queue[bytes] = Queue()
        Thread(target=lambda out=process.stdout: [*map(lines.put, out)]).start()

        def shows() -> bool:
            # It tells only what comes after its start. A minute of it fits into the
            # buffer of a pipe.
            table.insert(topic, "key")
            with suppress(Empty):
                return topic.encode() in lines.get(timeout=1)
            return False

        try:
            eventually(shows)
        finally:
            process.terminate()


def test_on_a_dumb_terminal_top_prints_lines(
    environment: Mapping[str, str], blocked: int
) -> None:
    command = [*TOP, "--count", "3"]
    with Terminal(command, environment, term="dumb") as terminal:
        assert terminal.exit_code() == 0
        assert len(terminal.rows) == 3
        assert terminal.rows[-1].endswith("blocked 1 record")
        assert b"\x1b" not in terminal.raw


def test_tail_ends_with_ctrl_c(
    environment: Mapping[str, str], table: OutboxTable
) -> None:
    with Terminal([*OUTBOX, "tail"], environment) as terminal:
        terminal.wait_for("Without ARCHIVE")
        (number,) = table.insert("orders", "secret")
        rows = terminal.wait_for(f"record {number} to orders")
        assert "secret" not in "\n".join(rows)
        terminal.type(b"\x03")
        assert terminal.exit_code() == 0
        assert "Traceback" not in "\n".join(terminal.rows)


@pytest.mark.parametrize(("answer", "code", "left"), [("no", 1, 1), ("yes", 0, 0)])
def test_skip_asks_on_the_terminal(
    environment: Mapping[str, str],
    table: OutboxTable,
    blocked: int,
    answer: str,
    code: int,
    left: int,
) -> None:
    with Terminal([*OUTBOX, "skip", str(blocked)], environment) as terminal:
        terminal.wait_for("Drop 1 record for good? Its message is lost. Type yes")
        terminal.type(f"{answer}\n".encode())
        assert terminal.exit_code() == code
    assert table.count() == left
