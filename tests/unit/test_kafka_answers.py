"""
What is left of a client whose request got no answer: nothing.

A harvester collects garbage so rarely that what waits for it counts as a leak. With
Kafka away, each attempt left four threads and four descriptors.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient

from django_outbox.election.ports import JoinLater
from django_outbox.exceptions import KafkaUnavailable, RecordPoisoned
from django_outbox.kafka import (
    batch_limit,
    cluster_reader,
    join_gate,
    partitions,
)
from django_outbox.kafka.batch_limit import BatchLimit
from django_outbox.kafka.cluster_reader import ClusterReader
from django_outbox.kafka.config import admin_config
from django_outbox.kafka.join_gate import JoinGate
from django_outbox.kafka.partitions import KafkaPartitions
from django_outbox.kafka.topics import ensure_topic, leader_topic
from django_outbox.relay.batch import Fault
from django_outbox.settings.options import OutboxSettings
from tests.waiting import eventually

from .samples import record

NOWHERE: Final = OutboxSettings(
    KAFKA={"bootstrap.servers": "127.0.0.1:1"}, LEADER_TOPIC="leaders"
)
CONFIG: Final = admin_config(NOWHERE)

TIMEOUTS: Final[tuple[tuple[ModuleType, str], ...]] = (
    (batch_limit, "LOOK_UP_TIMEOUT"),
    (cluster_reader, "REQUEST_TIMEOUT"),
    (join_gate, "ANSWER_WAIT"),
    (join_gate, "ANSWER_TIMEOUT"),
    (partitions, "REQUEST_TIMEOUT"),
)


@pytest.fixture(autouse=True)
def _no_garbage_collection(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module, name in TIMEOUTS:
        monkeypatch.setattr(module, name, 0.1)
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _ensure_topic() -> None:
    with pytest.raises(KafkaUnavailable):
        ensure_topic(CONFIG, leader_topic(NOWHERE), timeout=0.1)


def _ask_for_members() -> None:
    gate = JoinGate(CONFIG, group="g", session_timeout=6.0)
    with pytest.raises(JoinLater):
        gate.enter()
    gate.ask()
    assert "does not tell" in eventually(gate.obstacle)


def _look_at_partitions() -> None:
    with pytest.raises(KafkaUnavailable):
        KafkaPartitions(NOWHERE).look([("t", 0)])


def _read_the_cluster() -> None:
    with pytest.raises(KafkaUnavailable):
        ClusterReader(NOWHERE).read(["t"])


def _look_up_a_limit() -> None:
    limit = BatchLimit(CONFIG)
    too_large = RecordPoisoned("too large", is_certain=False)
    limit.refused([Fault(record(1), too_large)])
    limit.look_up()


@pytest.mark.parametrize(
    "ask",
    [
        _ensure_topic,
        _ask_for_members,
        _look_at_partitions,
        _read_the_cluster,
        _look_up_a_limit,
    ],
)
def test_a_request_without_an_answer_leaves_no_client(ask: Callable[[], None]) -> None:
    before = _clients()

    ask()

    assert _clients() == before


def _clients() -> int:
    return sum(isinstance(one, AdminClient) for one in gc.get_objects())
