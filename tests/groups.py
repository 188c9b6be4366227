"""
Which tests one process of a run takes together, and in which order.

A file's tests share fixtures and stay together; so do the tests of some folders,
each of which shares something costly. Each process has servers of its own.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Final

import pytest

TOGETHER: Final = ("simulation", "install", "pipeline")
"""Folders with a pool of workers, built wheels and a Spark session. They take
longest and begin first."""

ORDER: Final = (*TOGETHER, "acceptance", "clusters", "integration")
"""From the longest to the shortest, so that no process is left with a long one."""


def group(nodeid: str) -> str:
    """Return the name of the tests that stay together with this one."""
    folder, file = _folder(nodeid), nodeid.partition("::")[0]
    if folder == "pipeline":
        # Two Spark sessions; one process would be the last to end.
        half = 1 if PurePosixPath(file).name < "test_n" else 2
        return f"{folder} {half}"
    return folder if folder in TOGETHER else file


def sort(items: list[pytest.Item]) -> None:
    """Put the longest groups first; random order stays within groups."""
    items.sort(key=_rank)


def only_waits(item: pytest.Item) -> bool:
    """Whether a test waits for processes that give way to all others."""
    return _folder(item.nodeid) == "simulation"


def _rank(item: pytest.Item) -> int:
    folder = _folder(item.nodeid)
    return ORDER.index(folder) if folder in ORDER else len(ORDER)


def _folder(nodeid: str) -> str:
    """Return `unit` for `tests/unit/test_x.py::test_y`."""
    return PurePosixPath(nodeid.partition("::")[0]).parent.name
