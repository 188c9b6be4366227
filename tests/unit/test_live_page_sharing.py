"""Who waits for the database, when several people look at the live page."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from django.http import HttpRequest

from django_outbox.admin import live_page

Reading = dict[str, Any] | None


class FakeDatabase:
    """Gives readings, as `_read` does, or does not answer."""

    def __init__(self) -> None:
        self.asked = 0
        self.answers = True
        self.has_begun = threading.Event()
        self.goes_on = threading.Event()
        self.goes_on.set()

    def read(self, alias: str, *, with_keys: bool) -> Reading:
        self.asked += 1
        self.has_begun.set()
        self.goes_on.wait()
        return {"number": self.asked} if self.answers else None


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> FakeDatabase:
    made = FakeDatabase()
    monkeypatch.setattr(live_page, "_readings", {})
    monkeypatch.setattr(live_page, "_read", made.read)
    monkeypatch.setattr(live_page, "READING_TIMEOUT", 0.01)
    return made


def look() -> Reading:
    return live_page._reading("default", with_keys=False)


@contextmanager
def stalled(database: FakeDatabase) -> Iterator[Future[Reading]]:
    """The database stands still, and one viewer waits for it."""
    database.has_begun.clear()
    database.goes_on.clear()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(look)
        assert database.has_begun.wait(10)
        try:
            yield waiting
        finally:
            database.goes_on.set()


def test_a_second_viewer_does_not_wait_for_the_first(database: FakeDatabase) -> None:
    with stalled(database) as first:
        assert look() is None
        assert not first.done()
    assert first.result(10) == {"number": 1}
    assert database.asked == 1


def test_the_last_reading_is_shown_meanwhile_but_no_old_one(
    database: FakeDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_page, "OLDEST_SHOWN", 3600.0)
    assert look() == {"number": 1}
    monkeypatch.setattr(live_page, "SHARED_FOR", -1.0)
    with stalled(database) as first:
        assert look() == {"number": 1}
        monkeypatch.setattr(live_page, "OLDEST_SHOWN", -1.0)
        assert look() is None
    assert first.result(10) == {"number": 2}


def test_a_failure_is_shared_for_longer_than_a_reading(
    database: FakeDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_page, "SHARED_FOR", -1.0)
    monkeypatch.setattr(live_page, "RETRY_AFTER", 3600.0)
    database.answers = False
    assert look() is None
    database.answers = True
    assert look() is None
    assert database.asked == 1
    monkeypatch.setattr(live_page, "RETRY_AFTER", -1.0)
    assert look() == {"number": 2}


def test_without_a_reading_the_view_says_why(database: FakeDatabase) -> None:
    database.answers = False
    request: Any = HttpRequest()
    request.user = SimpleNamespace(has_perm=lambda _: True)
    answer = live_page.data(request)
    assert answer.status_code == 503
    error = "The database does not answer in time."
    assert json.loads(answer.content) == {"error": error}
