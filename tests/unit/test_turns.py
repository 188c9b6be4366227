"""Tests of several processes take turns with one that runs alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.turns import turn

SOON = 0.2
"""Seconds in which a turn that is free begins."""


class Other:
    """A test of another process: from its thread's point of view, another file."""

    def __init__(self, folder: Path, *, is_alone: bool) -> None:
        self.has_begun, self._may_end = threading.Event(), threading.Event()

        def run() -> None:
            with turn(folder, is_alone=is_alone):
                self.has_begun.set()
                self._may_end.wait(30)

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._may_end.set()
        self._thread.join(30)


@pytest.fixture
def ends() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_a_test_that_runs_alone_waits_and_is_waited_for(
    tmp_path: Path, ends: ExitStack
) -> None:
    first, second = (Other(tmp_path, is_alone=False) for _ in range(2))
    ends.callback(second.end)
    assert first.has_begun.wait(30)
    assert second.has_begun.wait(30)

    alone = Other(tmp_path, is_alone=True)
    ends.callback(alone.end)
    first.end()
    assert not alone.has_begun.wait(SOON)
    late = Other(tmp_path, is_alone=False)
    ends.callback(late.end)
    assert not late.has_begun.wait(SOON)

    second.end()
    assert alone.has_begun.wait(30)
    assert not late.has_begun.wait(SOON)
    alone.end()
    assert late.has_begun.wait(30)
