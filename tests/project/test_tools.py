"""The models and their migrations agree; `tests/run.py --lint` runs the linters."""

from __future__ import annotations

import os
import subprocess
import sys

from .checkout import ROOT


def test_no_migration_is_missing() -> None:
    command = ("-m", "django", "makemigrations", "--check", "--dry-run")
    done = subprocess.run(
        [sys.executable, *command],
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
