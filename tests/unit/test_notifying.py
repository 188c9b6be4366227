"""Receivers run behind a queue: they delay each other and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from django_outbox.events import Event, LeaderAcquired, LeaderRevoked
from django_outbox.harvester.notifier import Notifier

ACQUIRED = LeaderAcquired(name="n", leader_id="a")
REVOKED = LeaderRevoked(name="n", leader_id="a")


class Receivers:
    """Stands for the app's receivers: they may be held, and fail."""

    def __init__(self) -> None:
        self.seen: list[Event] = []
        self.failures = 0
        self.may_go = threading.Event()
        self.may_go.set()

    def send(self, event: Event) -> int:
        self.may_go.wait(10)
        self.seen.append(event)
        return self.failures


@pytest.fixture
def receivers() -> Receivers:
    return Receivers()


@pytest.fixture
def notifier(receivers: Receivers) -> Iterator[Notifier]:
    notifier = Notifier(receivers.send)
    thread = threading.Thread(target=notifier.run)
    thread.start()
    yield notifier
    receivers.may_go.set()
    notifier.stop()
    thread.join(10)


def test_events_arrive_in_order(notifier: Notifier, receivers: Receivers) -> None:
    notifier.put(ACQUIRED)
    assert notifier.put_and_wait(REVOKED, 10)

    assert [ACQUIRED, REVOKED] == receivers.seen
    assert 0 == notifier.errors


def test_telling_does_not_wait_for_receivers(
    notifier: Notifier, receivers: Receivers
) -> None:
    receivers.may_go.clear()

    done = notifier.put(ACQUIRED)

    assert not done.is_set()


def test_an_overrun_budget_is_counted_and_the_wait_ends(
    notifier: Notifier, receivers: Receivers
) -> None:
    receivers.may_go.clear()

    assert not notifier.put_and_wait(REVOKED, 0.01)

    assert 1 == notifier.errors


def test_receivers_that_raise_are_counted(
    notifier: Notifier, receivers: Receivers
) -> None:
    receivers.failures = 2

    notifier.put_and_wait(ACQUIRED, 10)

    assert 2 == notifier.errors


def test_what_is_queued_is_delivered_before_the_end(receivers: Receivers) -> None:
    notifier = Notifier(receivers.send)
    notifier.put(ACQUIRED)
    notifier.stop()

    notifier.run()

    assert [ACQUIRED] == receivers.seen
