"""Tests that no other process of the run may disturb."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def turn(folder: Path, *, is_alone: bool) -> Iterator[None]:
    """
    Wait for the others when this test is to run alone, or for one that does.

    Args:
        folder: one that all processes of the run know.
        is_alone: no other block runs at the same time.
    """
    with (folder / "gate").open("w") as gate, (folder / "running").open("w") as running:
        # Who waits to be alone keeps the gate, so that no test begins before it.
        fcntl.flock(gate, fcntl.LOCK_EX)
        fcntl.flock(running, fcntl.LOCK_EX if is_alone else fcntl.LOCK_SH)
        fcntl.flock(gate, fcntl.LOCK_UN)
        yield
