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
    """Begin what the collected modules will ask for, unless others may run them."""
    if not session.config.option.collectonly and not is_worker(session.config):
        begin(session)


def is_worker(config: pytest.Config) -> bool:
    """Whether this is one of several processes, each with some of the tests."""
    return hasattr(config, "workerinput")


def begin(session: pytest.Session) -> None:
    mine = [item for item in session.items if is_simulated(item)]
    if not mine:
        return
    session.stash[HISTORIES] = histories = Histories()
    # In the order of the tests, so that the first ones do not wait for the last.
    for module in dict.fromkeys(getattr(item, "module", None) for item in mine):
        if begin_all := getattr(module, "begin", None):
            begin_all(histories)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Leave no worker behind."""
    if HISTORIES in session.stash:
        session.stash[HISTORIES].close()


@pytest.fixture
def histories(request: pytest.FixtureRequest) -> Histories:
    """Plays histories on all processors."""
    if HISTORIES not in request.session.stash:
        begin(request.session)
    return request.session.stash[HISTORIES]
