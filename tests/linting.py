"""The linters and the type checker, which a run of the whole suite starts with."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parents[1]

COMMANDS: Final = {
    "ruff check": [sys.executable, "-m", "ruff", "check"],
    "ruff format": [sys.executable, "-m", "ruff", "format", "--check"],
    "lint-imports": [str(Path(sys.executable).with_name("lint-imports"))],
    "mypy": [sys.executable, "-m", "mypy"],
}

NOWHERE: Final = {
    "DATABASE_URL": "postgres://nowhere/outbox",
    "KAFKA_BOOTSTRAP_SERVERS": "nowhere:9092",
}
"""The example project's settings, which mypy loads, want both."""


def lint(*, say: Callable[[str], None]) -> int:
    """Run all of them side by side; return 1 when one objects, and 0 otherwise."""
    with ThreadPoolExecutor(len(COMMANDS)) as executor:
        return int(not all(executor.map(lambda name: _passes(name, say), COMMANDS)))


def _passes(name: str, say: Callable[[str], None]) -> bool:
    began = time.monotonic()
    ended = subprocess.run(
        COMMANDS[name],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    passes = ended.returncode == 0
    verdict = "passed" if passes else "FAILED"
    output = "" if passes else f"\n{ended.stdout.rstrip()}"
    say(f"{name} {verdict} ({time.monotonic() - began:.1f} s){output}")
    return passes


def environment() -> dict[str, str]:
    """The present one, without what is meant for tests and harvesters."""
    outer = {k: v for k, v in os.environ.items() if not k.startswith("OUTBOX_")}
    return {**outer, **NOWHERE}
