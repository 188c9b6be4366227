"""
How other processes of this user find a running devstack.

`python -m django_outbox.devstack` publishes its variables in a file of the
user's cache folder; the example project's settings read them when their own
variables are not set. The publisher holds a lock on the file, which the
system releases however it dies: a file that nobody has locked is stale.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

PATIENCE: Final = 1.0
"""Seconds for which a reader's short look at the lock may hold a publisher up."""


def address_file() -> Path:
    """Where the variables are published; needs the wheels of the devstack."""
    from platformdirs import user_cache_path

    return user_cache_path("django-outbox", appauthor=False) / "devstack.json"


@contextmanager
def published(
    environment: Mapping[str, str], *, path: Path | None = None
) -> Iterator[bool]:
    """
    Publish these variables while the block runs.

    Yields False, and publishes nothing, while another devstack is published.
    """
    path = path or address_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    # The addresses carry a password: for this user's eyes only.
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        is_ours = _lock(file)
        if is_ours:
            os.ftruncate(file, 0)
            os.pwrite(file, json.dumps(dict(environment)).encode(), 0)
        try:
            yield is_ours
        finally:
            if is_ours:
                os.ftruncate(file, 0)
    finally:
        os.close(file)


def running(*, path: Path | None = None) -> dict[str, str]:
    """The variables of a running devstack; empty when none is published."""
    try:
        with (path or address_file()).open("rb") as file:
            if _try_lock(file.fileno(), fcntl.LOCK_SH):
                return {}
            return dict(json.load(file))
    except (ImportError, OSError, ValueError):
        # Not installed, never run, or just beginning or ending.
        return {}


def _lock(file: int) -> bool:
    deadline = time.monotonic() + PATIENCE
    while not _try_lock(file, fcntl.LOCK_EX):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _try_lock(file: int, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
