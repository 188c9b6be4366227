"""What the tests know of the machine they run on, and what they are asked to do."""

from __future__ import annotations

import os
from typing import Final, NoReturn

import pytest

from django_outbox.devstack.server_clock import libfaketime

HISTORIES: Final = int(os.environ.get("TESTS_HISTORIES", "300"))
"""Histories that the simulator plays."""
SOAK: Final = float(os.environ.get("TESTS_SOAK", "12"))
"""Seconds of the exactly-once soak."""
COLD_STARTS: Final = int(os.environ.get("TESTS_COLD_STARTS", "1"))
"""Starts on a cold broker, with fresh topics."""

NIGHTLY: Final = bool(os.environ.get("TESTS_NIGHTLY"))
"""Whether this run may take hours."""

nightly = pytest.mark.skipif(not NIGHTLY, reason="takes long: only with --nightly")
"""Marks what takes long, and whose subject another test tries by day."""

# Taken out of the environment, which child processes inherit: the example project
# refuses variables OUTBOX_... that it does not know.
SEEDS: Final = range(1, int(os.environ.pop("OUTBOX_TEST_SEEDS", "1")) + 1)
"""Of the transactions around each fault of the matrix."""

chaos = pytest.mark.skipif(
    not os.environ.get("TESTS_CHAOS"), reason="the fault matrix: only with --chaos"
)
"""Marks what `--chaos` runs, and nothing else."""

IN_BACKGROUND: Final = ("sh", "-c", 'trap "" INT; exec "$@"', "sh")
"""Before a command: as a script's `command &`, which ignores SIGINT from the start."""


def do_without(reason: str) -> NoReturn:
    """End a test that this machine cannot run: a skip on a laptop, a failure in CI."""
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def require_libfaketime() -> None:
    """End a test that needs a server whose clock is ahead, where there is none."""
    if not libfaketime():
        do_without(
            "libfaketime is not installed, or does not load here: see"
            " django_outbox/devstack/server_clock.py for where it is looked for."
        )
