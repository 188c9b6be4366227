"""Signals reach every receiver, and no receiver reaches the harvest."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from django.dispatch import Signal

from django_outbox import events, signals
from django_outbox.harvester.harvester import Harvester

ACQUIRED = events.LeaderAcquired(name="one", leader_id="L")


@pytest.fixture(autouse=True)
def only_these_receivers() -> Iterator[None]:
    """Let no receiver of the test outlive it, nor any other take part."""
    kept = {signal: signal.receivers for signal in signals._SIGNALS.values()}
    for signal in kept:
        _set_receivers(signal, [])
    yield
    for signal, receivers in kept.items():
        _set_receivers(signal, receivers)


def test_receivers_get_the_event_and_the_harvester_class() -> None:
    seen: list[tuple[Any, Any]] = []

    def receiver(sender: Any, event: Any, **kwargs: Any) -> None:
        seen.append((sender, event))

    signals.leader_acquired.connect(receiver, sender=Harvester)
    assert signals.send(ACQUIRED, sender=Harvester) == 0
    assert seen == [(Harvester, ACQUIRED)]


@pytest.mark.parametrize(
    ("event", "signal"),
    [
        (ACQUIRED, signals.leader_acquired),
        (
            events.LeaderRefreshed(name="n", previous_leader_id="K", reason="r"),
            signals.leader_refreshed,
        ),
        (events.LeaderRevoked(name="n"), signals.leader_revoked),
        (events.LeaderFenced(name="n", reason="r"), signals.leader_fenced),
        (
            events.RecordParked(
                name="n", record_id=1, message_id="m", topic="t", attempts=1, error="e"
            ),
            signals.record_parked,
        ),
        (
            events.SeriesExpired(name="n", series="s", messages=3, action="park"),
            signals.series_expired,
        ),
        (
            events.TakeoverStarted(name="n", origin=1, records=3),
            signals.takeover_started,
        ),
        (
            events.TakeoverEnded(name="n", origin=1, records=9),
            signals.takeover_ended,
        ),
    ],
)
def test_each_event_has_its_signal(event: events.Event, signal: Signal) -> None:
    seen: list[Any] = []

    def receiver(event: Any, **kwargs: Any) -> None:
        seen.append(event)

    signal.connect(receiver)
    signals.send(event)
    assert seen == [event]


@pytest.mark.parametrize("kind", [events.Ready, events.Stopped])
def test_the_ends_of_a_run_have_no_signal(kind: type[events.Event]) -> None:
    assert signals.send(kind(name="n")) == 0


def _fail(**kwargs: Any) -> None:
    raise ValueError("broken receiver")


def _exit(**kwargs: Any) -> None:
    sys.exit(3)


def _interrupt(**kwargs: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("broken", [_fail, _exit, _interrupt])
def test_a_receiver_that_raises_is_counted_and_the_others_still_run(
    broken: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even sys.exit() in a receiver ends the thread or skips another."""
    seen: list[str] = []

    def before(**kwargs: Any) -> None:
        seen.append("before")

    def after(**kwargs: Any) -> None:
        seen.append("after")

    for receiver in (before, broken, after):
        signals.leader_acquired.connect(receiver)
    with caplog.at_level(logging.ERROR):
        assert signals.send(ACQUIRED) == 1
    assert seen == ["before", "after"]
    assert broken.__name__ in caplog.text


def test_an_asynchronous_receiver_that_raises_is_counted() -> None:
    async def broken(**kwargs: Any) -> None:
        raise ValueError("broken receiver")

    signals.leader_acquired.connect(broken)
    assert signals.send(ACQUIRED) == 1


def test_a_method_can_be_connected_and_disconnected() -> None:
    class Listener:
        seen = 0

        def receive(self, **kwargs: Any) -> None:
            self.seen += 1

    listener = Listener()
    signals.leader_acquired.connect(listener.receive)
    signals.send(ACQUIRED)
    assert signals.leader_acquired.disconnect(listener.receive)
    signals.send(ACQUIRED)
    assert listener.seen == 1


def _set_receivers(signal: Signal, receivers: list[Any]) -> None:
    with signal.lock:
        signal.receivers = receivers
        signal.sender_receivers_cache.clear()
