"""
Lets other processes of this user find a running devstack.

A devstack publishes its variables in a file of the user's cache folder and
holds a lock on it. The system releases the lock however the process ends, so a
file without a lock is stale.
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

ANOTHER: Final = "Another devstack is running and stays the default."

LOCK_TIMEOUT: Final = 1.0
"""Seconds that a publisher waits for the lock; readers hold it for an instant."""


def address_file() -> Path:
    """Return the path of the file; needs the extra `devstack`."""
    from platformdirs import user_cache_path

    return user_cache_path("django-outbox", appauthor=False) / "devstack.json"


@contextmanager
def published(
    environment: Mapping[str, str], *, path: Path | None = None
) -> Iterator[str]:
    """
    Publish these variables while the block runs.

    Yields why nothing is published, as when another devstack is; else "".
    """
    try:
        path = path or address_file()
        path.parent.mkdir(parents=True, exist_ok=True)
        # Only this user may read the file, because the URL contains a password.
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except (ImportError, OSError) as error:
        # Whoever needs the addresses has them on the terminal.
        yield f"Other terminals do not find this devstack: {error}."
        return
    try:
        is_ours = _lock(file)
        if is_ours:
            os.ftruncate(file, 0)
            os.pwrite(file, json.dumps(dict(environment)).encode(), 0)
        try:
            yield "" if is_ours else ANOTHER
        finally:
            if is_ours:
                os.ftruncate(file, 0)
    finally:
        os.close(file)


def running(*, path: Path | None = None) -> dict[str, str]:
    """Return the variables of a running devstack; empty if none is published."""
    try:
        with (path or address_file()).open("rb") as file:
            if _try_lock(file.fileno(), fcntl.LOCK_SH):
                return {}
            return dict(json.load(file))
    except (ImportError, OSError, ValueError):
        # Not installed, never run, or starting or stopping right now.
        return {}


def _lock(file: int) -> bool:
    deadline = time.monotonic() + LOCK_TIMEOUT
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
