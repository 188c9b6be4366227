"""The project's tools, each as `docs/contributing.md` tells to run it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .checkout import ROOT

LINT_IMPORTS = Path(sys.executable).with_name("lint-imports")


@pytest.mark.parametrize(
    "command",
    [
        pytest.param([sys.executable, "-m", "ruff", "check"], id="ruff check"),
        pytest.param(
            [sys.executable, "-m", "ruff", "format", "--check"], id="ruff format"
        ),
        pytest.param([sys.executable, "-m", "mypy"], id="mypy"),
        pytest.param([str(LINT_IMPORTS)], id="lint-imports"),
        pytest.param(
            [sys.executable, "-m", "django", "makemigrations", "--check", "--dry-run"],
            id="makemigrations",
        ),
    ],
)
def test_tool_is_content(command: list[str]) -> None:
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "DJANGO_SETTINGS_MODULE": "tests.settings",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
