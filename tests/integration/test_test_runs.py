"""`tests/run.py` and two runs at once: what a laptop is to be spared."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest

from django_outbox.devstack import Stack
from django_outbox.devstack.waiting import wait_while_moving
from tests import linting

ROOT = Path(__file__).resolve().parents[2]

ONE_TEST = ("tests/run.py", "-q", "-c", "pyproject.toml", "-p", "tests.conftest")
"""Runs a file that lies elsewhere, with the fixtures of these tests."""

NOWHERE = {
    "DATABASE_URL": "postgres://127.0.0.1:1/another",
    "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
}


def run(
    *command: str | Path, cwd: Path = ROOT, variables: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Run a command to its end; its exit code, and all that it printed."""
    ended = subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env={**os.environ, **(variables or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=300,
    )
    return ended.returncode, ended.stdout


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_needs_no_environment_and_no_service(tmp_path: Path, option: str) -> None:
    """Where there is nothing but the script, nothing can be installed or started."""
    (tmp_path / "tests").mkdir()
    script = shutil.copy(ROOT / "tests" / "run.py", tmp_path / "tests")
    code, output = run("-I", "-S", script, "tests/unit", option, cwd=tmp_path)

    assert code == 0, output
    assert "python3 tests/run.py [options] [what pytest understands]" in output
    assert "pytest --help" in output
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["run.py", "tests"]


def test_a_run_has_servers_of_its_own(tmp_path: Path) -> None:
    """Variables that a devstack has exported are another run's."""
    if "DEVSTACK_SOURCES" in os.environ:
        pytest.skip("DEVSTACK_SOURCES is set: this run may have no servers of its own")
    test = tmp_path / "test_own.py"
    test.write_text(
        "import psycopg\n"
        "def test_own(services):\n"
        "    psycopg.connect(services.database_url).close()\n"
        "    assert services.bootstrap_servers != '127.0.0.1:1'\n"
    )
    code, output = run(*ONE_TEST, test, variables=NOWHERE)

    assert code == 0, output
    assert "DATABASE_URL and KAFKA_BOOTSTRAP_SERVERS not used" in output


def test_sigterm_ends_all_that_a_run_has_started(tmp_path: Path) -> None:
    """A daemon in a session of its own, too, which no fixture ends."""
    test = tmp_path / "test_daemon.py"
    test.write_text(
        "import pathlib, subprocess, time\n"
        "FOLDER = pathlib.Path(__file__).parent\n"
        "def test_daemon():\n"
        "    try:\n"
        "        command = 'setsid sleep 1000 >/dev/null 2>&1 & echo $!'\n"
        "        pid = subprocess.check_output(['sh', '-c', command])\n"
        "        (FOLDER / 'partial').write_bytes(pid)\n"
        "        (FOLDER / 'partial').rename(FOLDER / 'pid')\n"
        "        time.sleep(1000)\n"
        "    finally:\n"
        "        (FOLDER / 'ended').touch()\n"
    )
    with subprocess.Popen(
        [sys.executable, *ONE_TEST, test],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
    ) as running:
        try:
            wait_while_moving((tmp_path / "pid").exists, what="the test to begin")
            daemon = psutil.Process(int((tmp_path / "pid").read_text()))
            running.terminate()
            assert running.wait(60) == pytest.ExitCode.INTERRUPTED
        finally:
            running.kill()
    assert (tmp_path / "ended").exists()
    assert not daemon.is_running()


def test_processes_share_a_run_out_by_groups() -> None:
    """A file stays in one process, and so do folders that share something costly."""
    together = ("tests/simulation/test_threads.py", "tests/simulation/test_table.py")
    alone = "tests/unit/test_turns.py"
    code, output = run("tests/run.py", "-n2", "-v", *together, alone)

    assert code == 0, output
    ran = re.findall(r"\[(gw\d)\] .* PASSED ([^:\n]+)::", output)
    assert {path for _, path in ran} == {*together, alone}
    assert len({process for process, path in ran if path in together}) == 1
    assert len({process for process, _ in ran}) == 2


def test_a_linter_that_objects_fails_with_its_output(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []
    good = [sys.executable, "-c", "print('nothing to say')"]
    bad = [sys.executable, "-c", "raise SystemExit('line too long')"]

    monkeypatch.setattr(linting, "COMMANDS", {"good": good})
    assert linting.lint(say=said.append) == 0
    monkeypatch.setattr(linting, "COMMANDS", {"good": good, "bad": bad})
    assert linting.lint(say=said.append) == 1

    assert "nothing to say" not in "".join(said)
    assert "line too long" in "".join(said)


def test_a_second_run_on_the_same_servers_is_refused(services: Stack) -> None:
    """It would drop the test database of the first one."""
    test = "tests/integration/test_models.py"
    code, output = run("-m", "pytest", "-q", "-x", test, variables=services.environment)

    assert code == pytest.ExitCode.USAGE_ERROR, output
    assert "Another test run uses the server that DATABASE_URL names" in output
