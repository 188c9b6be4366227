"""
Which tests one process of a run takes together, and in which order.

A file's tests share fixtures and stay together; so do the tests of some folders,
each of which shares something costly. Each process has servers of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).parent

TOGETHER: Final = ("simulation", "install", "pipeline")
"""Folders with a pool of workers, built wheels and a Spark session. They take
longest and begin first."""

ORDER: Final = (*TOGETHER, "acceptance", "clusters", "integration")
"""From the longest to the shortest, so that no process is left with a long one."""


def mark(items: Iterable[pytest.Item]) -> None:
    """Give each test the mark that pytest-xdist reads."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))


def sort(items: list[pytest.Item]) -> None:
    """Put the longest groups first; random order stays within groups."""
    items.sort(key=_rank)


def only_waits(item: pytest.Item) -> bool:
    """Whether a test waits for processes that give way to all others."""
    return _folder(item) == "simulation"


def _group(item: pytest.Item) -> str:
    folder = _folder(item)
    return folder if folder in TOGETHER else str(item.path)


def _rank(item: pytest.Item) -> int:
    folder = _folder(item)
    return ORDER.index(folder) if folder in ORDER else len(ORDER)


def _folder(item: pytest.Item) -> str:
    return item.path.relative_to(TESTS).parts[0] if TESTS in item.path.parents else ""
