"""The workers that all tests of the simulator share, and when they begin."""

from __future__ import annotations

from pathlib import Path

import pytest

from .ahead import Histories

FOLDER = Path(__file__).parent

HISTORIES = pytest.StashKey[Histories]()


def is_simulated(item: pytest.Item) -> bool:
    return item.path.is_relative_to(FOLDER)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let these tests come last: their histories are played meanwhile."""
    items.sort(key=is_simulated)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Begin what the collected modules will ask for."""
    mine = [item for item in session.items if is_simulated(item)]
    if not mine or session.config.option.collectonly:
        return
    session.stash[HISTORIES] = histories = Histories()
    for module in {getattr(item, "module", None) for item in mine}:
        if begin := getattr(module, "begin", None):
            begin(histories)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Leave no worker behind."""
    if HISTORIES in session.stash:
        session.stash[HISTORIES].close()


@pytest.fixture
def histories(request: pytest.FixtureRequest) -> Histories:
    """Plays histories on all processors."""
    return request.session.stash[HISTORIES]
