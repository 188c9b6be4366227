"""Which topics are looked up for the size of a batch, and when again."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from django_outbox.exceptions import RecordPoisoned
from django_outbox.kafka import batch_limit
from django_outbox.kafka.batch_limit import RETRY_INTERVAL, BatchLimit
from django_outbox.relay.batch import Fault
from tests.fakes.timeline import Timeline

from .samples import record

TIMED_OUT = KafkaError(KafkaError._TIMED_OUT)
DENIED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)


class Admin:
    """A client that answers as a test says."""

    def __init__(self) -> None:
        self.errors: dict[str, KafkaError] = {}
        self.asked: list[set[str]] = []
        self.limit = 20_000

    def describe_configs(self, asked: list[Any], **_: float) -> dict[Any, Future[Any]]:
        self.asked.append({resource.name for resource in asked})
        return {resource: self._answer(resource.name) for resource in asked}

    def _answer(self, topic: str) -> Future[Any]:
        answer: Future[Any] = Future()
        if error := self.errors.get(topic):
            answer.set_exception(KafkaException(error))
        else:
            answer.set_result(
                {"max.message.bytes": SimpleNamespace(value=str(self.limit))}
            )
        return answer


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> Admin:
    admin = Admin()
    monkeypatch.setattr(batch_limit, "make", lambda *_: admin)
    return admin


@pytest.fixture
def limit(clock: Timeline) -> BatchLimit:
    return BatchLimit({}, clock=clock)


def refuse(limit: BatchLimit, *topics: str) -> None:
    """Let these topics refuse a batch; then a producer is built."""
    error = RecordPoisoned("too large", is_certain=False)
    records = [record(1)._replace(topic=topic) for topic in topics]
    limit.refused([Fault(record, error) for record in records])
    limit.look_up()


def batch_size(limit: BatchLimit) -> int:
    return int(limit.applied({"batch.size": 1_000_000})["batch.size"])


def test_a_topic_that_has_answered_is_looked_up_again_when_it_refuses(
    limit: BatchLimit, admin: Admin, clock: Timeline
) -> None:
    """Its limit may have been lowered."""
    refuse(limit, "a")
    clock.advance(10 * RETRY_INTERVAL)
    limit.look_up()
    assert admin.asked == [{"a"}]
    admin.limit = 5_000
    refuse(limit, "a")
    assert batch_size(limit) == 20_000
    clock.advance(RETRY_INTERVAL)
    limit.look_up()
    assert batch_size(limit) == 5_000
    assert len(admin.asked) == 2


@pytest.mark.parametrize("error", [TIMED_OUT, DENIED])
def test_a_topic_without_an_answer_is_looked_up_again_later(
    limit: BatchLimit, admin: Admin, clock: Timeline, error: KafkaError
) -> None:
    admin.errors["a"] = error
    for _ in range(100):
        refuse(limit, "a")
        clock.advance(RETRY_INTERVAL / 20)
    assert len(admin.asked) == 5
    assert batch_size(limit) == 1_000_000

    admin.errors.clear()
    clock.advance(RETRY_INTERVAL)
    refuse(limit, "a")
    assert batch_size(limit) == 20000


def test_one_topic_without_an_answer_does_not_hide_another(
    limit: BatchLimit, admin: Admin, clock: Timeline
) -> None:
    admin.errors["a"] = DENIED
    refuse(limit, "a", "b")
    assert batch_size(limit) == 20000

    clock.advance(RETRY_INTERVAL)
    refuse(limit, "a", "b")
    assert admin.asked == [{"a", "b"}, {"a"}]
