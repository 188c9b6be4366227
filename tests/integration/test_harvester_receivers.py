"""Receivers of the application's own: whatever they do, the harvest goes on."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import transaction

from django_outbox import signals, stash
from django_outbox.events import Event
from django_outbox.harvester.harvester import Harvester
from django_outbox.models import OutboxRecord
from tests.waiting import eventually

from .harvesting import PATIENCE, Witness, fast_options

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def witness() -> Witness:
    return Witness()


@pytest.fixture
def connect() -> Iterator[Callable[..., None]]:
    """Connects receivers until the test ends."""
    connected: list[tuple[Any, Any]] = []

    def connect(signal: Any, receiver: Any) -> None:
        signal.connect(receiver)
        connected.append((signal, receiver))

    yield connect
    for signal, receiver in connected:
        signal.disconnect(receiver)


def send(topic: str, count: int = 1) -> None:
    with transaction.atomic():
        for _ in range(count):
            stash(topic, key="key", value="value")


def is_empty() -> bool:
    return not OutboxRecord.objects.exists()


def raise_an_error(event: Event, **_: object) -> None:
    raise LookupError("the receiver's own fault")


def exit_the_process(event: Event, **_: object) -> None:
    sys.exit(3)


@pytest.mark.parametrize("receiver", [raise_an_error, exit_the_process])
def test_a_receiver_that_fails_is_counted_and_stops_nothing(
    bootstrap_servers: str,
    topic: str,
    witness: Witness,
    connect: Callable[..., None],
    receiver: Any,
) -> None:
    for signal in (signals.leader_acquired, signals.meter_read):
        connect(signal, receiver)
    options = fast_options(bootstrap_servers)
    with Harvester(options=options, observers=[witness]) as harvester:
        witness.wait_for("leader_acquired")
        send(topic)
        eventually(is_empty)
        witness.wait_until(
            lambda events: [e for e in events if getattr(e, "receiver_errors", 0) > 1]
        )
        assert harvester.is_alive
    assert witness.kinds() == [
        *("ready", "leader_acquired", "leader_revoked", "stopped")
    ]


def test_a_receiver_that_takes_its_time_holds_nothing_up(
    bootstrap_servers: str,
    topic: str,
    witness: Witness,
    connect: Callable[..., None],
) -> None:
    may_return = threading.Event()
    entered = threading.Event()

    def wait(event: Event, **_: object) -> None:
        entered.set()
        may_return.wait(PATIENCE)

    connect(signals.leader_acquired, wait)
    options = fast_options(bootstrap_servers)
    with Harvester(options=options, observers=[witness]):
        assert entered.wait(PATIENCE)
        begun = witness.wait_for("leader_acquired").boottime_ns
        # Far beyond the heartbeat time-out of one second it leads and harvests.
        witness.wait_until(lambda events: events[-1].boottime_ns - begun > 4e9)
        send(topic, 5)
        eventually(is_empty)
        assert not may_return.is_set()
        may_return.set()
    assert witness.kinds() == [
        *("ready", "leader_acquired", "leader_revoked", "stopped")
    ]


def test_a_receiver_of_revoked_keeps_the_successor_waiting_within_its_budget(
    bootstrap_servers: str, witness: Witness, connect: Callable[..., None]
) -> None:
    returned = threading.Event()
    successor_led: list[bool] = []

    def clean_up(event: Event, **_: object) -> None:
        # Half of the budget, in which nobody else may lead.
        threading.Event().wait(0.5)
        successor_led.append(
            any(e.kind == "leader_acquired" and e.name == "b" for e in witness.events)
        )
        returned.set()

    options = fast_options(bootstrap_servers, REVOKE_TIMEOUT=1.0)
    first = Harvester(name="a", options=options, observers=[witness])
    second = Harvester(name="b", options=options, observers=[witness])
    with first:
        witness.wait_for("leader_acquired", name="a")
        with second:
            witness.wait_for("ready", name="b")
            connect(signals.leader_revoked, clean_up)
            first.stop()
            acquired = witness.wait_for("leader_acquired", name="b")
            assert returned.is_set()
            assert first.join(PATIENCE)
            revoked = witness.wait_for("leader_revoked", name="a")
    assert successor_led[0] is False
    assert acquired.boottime_ns - revoked.boottime_ns >= 0.5e9


def test_a_receiver_of_revoked_that_overruns_is_left_behind(
    bootstrap_servers: str, witness: Witness, connect: Callable[..., None]
) -> None:
    may_return = threading.Event()

    def hang(event: Event, **_: object) -> None:
        may_return.wait(PATIENCE)

    connect(signals.leader_revoked, hang)
    options = fast_options(bootstrap_servers, REVOKE_TIMEOUT=0.3)
    harvester = Harvester(options=options, observers=[witness])
    harvester.start()
    witness.wait_for("leader_acquired")
    harvester.stop()
    revoked = witness.wait_for("leader_revoked")
    stopped = witness.wait_for("stopped")
    may_return.set()
    assert harvester.join(PATIENCE)
    assert (stopped.boottime_ns - revoked.boottime_ns) / 1e9 < 2
