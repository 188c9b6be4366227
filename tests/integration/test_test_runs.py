"""`tests/run.py` and two runs at once: what a laptop is to be spared."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

NOWHERE = {
    "DATABASE_URL": "postgres://127.0.0.1:1/another",
    "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
}


def run(*command: str | Path, cwd: Path = ROOT, **variables: str) -> tuple[int, str]:
    """Run a command to its end; its exit code, and all that it printed."""
    ended = subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env={**os.environ, **variables},
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
    assert "python3 tests/run.py [what pytest understands]" in output
    assert "pytest --help" in output
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["run.py", "tests"]


def test_a_run_has_servers_of_its_own(tmp_path: Path) -> None:
    """Variables that a devstack has exported are another run's."""
    if "DEVSTACK_SOURCES" in os.environ:
        pytest.skip("DEVSTACK_SOURCES is set: this run may have no servers of its own")
    test = tmp_path / "test_own.py"
    test.write_text(
        "import os, psycopg\n"
        "def test_own():\n"
        "    psycopg.connect(os.environ['DATABASE_URL']).close()\n"
        "    assert os.environ['KAFKA_BOOTSTRAP_SERVERS'] != '127.0.0.1:1'\n"
    )
    code, output = run("tests/run.py", "-q", "-c", "pyproject.toml", test, **NOWHERE)

    assert code == 0, output
    assert "DATABASE_URL and KAFKA_BOOTSTRAP_SERVERS not used" in output


def test_a_second_run_on_the_same_servers_is_refused(database_url: str) -> None:
    """It would drop the test database of the first one."""
    test = "tests/integration/test_models.py"
    code, output = run("-m", "pytest", "-q", "-x", test)

    assert code == pytest.ExitCode.USAGE_ERROR, output
    assert "Another test run uses the server that DATABASE_URL names" in output


def test_the_options_of_the_tests_do_not_reach_the_example_project() -> None:
    """It refuses variables OUTBOX_... that it does not know."""
    code, output = run(
        *("-m", "pytest", "-q", "tests/project/test_tools.py", "-k", "mypy"),
        OUTBOX_SIMULATION_HISTORIES="100",
        OUTBOX_TEST_SOAK="10",
    )
    assert code == 0, output
