"""How a process that may lead other shards listens to those that it does not own."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import pytest

from django_outbox.election.ports import Heartbeat
from django_outbox.exceptions import KafkaUnavailable
from django_outbox.kafka import lookout as module
from django_outbox.kafka.lookout import Lookout
from django_outbox.message.record import Identity
from django_outbox.settings.options import OutboxSettings

HERE = Identity("3f2a9c1b-7d4e-4f00-8000-000000000001", "7711455915790997796/16385/2")


class Ear:
    """In place of `Watch`; may be refused, as without an identity provider."""

    made: int = 0
    is_refused = False
    shards: Collection[int] = ()

    def __init__(self, *_: Any, shards: Collection[int], **__: Any) -> None:
        Ear.made += 1
        if Ear.is_refused:
            raise KafkaUnavailable
        self.turn_to(shards)

    def turn_to(self, shards: Collection[int]) -> None:
        Ear.shards = shards

    def heard(self) -> Iterator[tuple[Heartbeat, int]]:
        return iter(())

    def close(self) -> None:
        Ear.shards = ()


@pytest.fixture(autouse=True)
def ear(monkeypatch: pytest.MonkeyPatch) -> type[Ear]:
    monkeypatch.setattr(module, "Watch", Ear)
    monkeypatch.setattr(Ear, "made", 0)
    monkeypatch.setattr(Ear, "is_refused", False)
    return Ear


@pytest.fixture
def lookout() -> Lookout:
    options = OutboxSettings(LEADER_TOPIC="leaders", SHARDS=3)
    return Lookout(options, identity=lambda: HERE, client_id={})


def test_one_client_listens_to_whatever_shards_are_led_elsewhere(
    lookout: Lookout, ear: type[Ear]
) -> None:
    for shards in ({0, 1, 2}, {1, 2}, set[int](), {2}):
        lookout.look(shards)
        assert {*ear.shards} == shards
    assert ear.made == 1


def test_a_client_that_cannot_be_made_is_not_tried_at_every_poll(
    lookout: Lookout, ear: type[Ear], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt may take ten seconds, in which the group hears nothing."""
    ear.is_refused = True
    for _ in range(5):
        lookout.look({0})
    assert ear.made == 1

    ear.is_refused = False
    monkeypatch.setattr(lookout, "_watch_at", 0.0)
    lookout.look({0})
    assert {*ear.shards} == {0}


def test_who_owns_all_shards_needs_no_client(lookout: Lookout, ear: type[Ear]) -> None:
    lookout.look(())
    assert ear.made == 0
