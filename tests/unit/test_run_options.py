"""What the options of `tests/run.py` come to."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.project.checkout import ROOT
from tests.run import NIGHTLY, names_path

SIZES = (
    "from tests import machine as m;"
    "print(m.HISTORIES, m.SOAK, m.COLD_STARTS, m.NIGHTLY)"
)


def test_each_process_of_a_nightly_run_has_its_sizes() -> None:
    """Those, too, whose parent has read the sizes before it started them."""
    start = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SIZES!r}])"
    output = subprocess.run(
        [sys.executable, "-c", f"{SIZES}; {start}"],
        cwd=ROOT,
        env={**os.environ, **NIGHTLY},
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    assert output.splitlines() == ["40000 120.0 20 True"] * 2


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["-n2", "-x"],
        ["-k", "docs"],
        ["-m", "tests"],
        ["-p", "tests"],
        ["-c", "pyproject.toml"],
        ["--ignore", "tests/unit", "--deselect", "tests/run.py::test"],
        ["--ignore=tests/unit"],
        ["--junitxml", "README.md", "--log-file", "README.md"],
    ],
)
def test_a_run_without_a_path_is_of_all_tests(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert not names_path(arguments)


@pytest.mark.parametrize(
    "arguments",
    [["tests/unit"], ["-k", "docs", "tests/run.py::test"], ["-x", "tests/run.py"]],
)
def test_a_run_with_a_path_is_of_its_tests(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert names_path(arguments)
