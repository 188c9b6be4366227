"""What is logged of the outbox's own topics as they are found."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from django_outbox.kafka import topics
from django_outbox.kafka.config import admin_config
from django_outbox.kafka.topics import (
    OwnTopic,
    ensure_topic,
    leader_topic,
    ledger_topic,
)
from django_outbox.settings.options import OutboxSettings

OPTIONS = OutboxSettings(LEADER_TOPIC="leaders", SHARDS=2)


class Admin:
    """A client of a broker on which each topic has four partitions."""

    def describe_topics(self, asked: Any, **_: float) -> dict[str, Future[Any]]:
        (name,) = asked.topic_names
        partition = SimpleNamespace(leader=SimpleNamespace(id=1))
        answer: Future[Any] = Future()
        answer.set_result(SimpleNamespace(partitions=[partition] * 4))
        return {name: answer}


def complaints(
    topic: OwnTopic,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> list[str]:
    monkeypatch.setattr(topics, "make", lambda *_: Admin())
    assert ensure_topic(admin_config(OPTIONS), topic) == 4
    return [record.getMessage() for record in caplog.records]


def test_partitions_of_the_leader_topic_without_a_shard_are_worth_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (line,) = complaints(leader_topic(OPTIONS), monkeypatch, caplog)
    assert line.startswith(
        "The leader topic leaders has 4 partitions but needs only 2: the group "
    )


def test_the_ledger_topic_may_have_more_partitions_than_shards(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert complaints(ledger_topic(OPTIONS, 0), monkeypatch, caplog) == []
