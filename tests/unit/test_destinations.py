"""A record joins a transaction only when its topic can take it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from django_outbox.exceptions import DeliveryFailed, RecordPoisoned
from django_outbox.kafka.destinations import Destinations

from .samples import record


class Client:
    """Answers with one leader for each partition, or with an error."""

    def __init__(self) -> None:
        self.leaders = [1, 1]
        self.error: KafkaError | None = None
        self.is_away = False
        self.looks = 0

    def list_topics(self, topic: str, *, timeout: float) -> Any:
        assert timeout > 0
        self.looks += 1
        if self.is_away:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        partitions = {
            number: SimpleNamespace(leader=leader)
            for number, leader in enumerate(self.leaders)
        }
        found = SimpleNamespace(error=self.error, partitions=partitions)
        return SimpleNamespace(topics={topic: found})


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def destinations(client: Client) -> Destinations:
    return Destinations(client)  # type: ignore[arg-type]


def refused(destinations: Destinations) -> str:
    """The code with which a record is refused."""
    with pytest.raises(DeliveryFailed) as caught:
        destinations.check(record(1))
    return caught.value.code


def test_a_topic_that_is_ready_is_looked_up_once(
    client: Client, destinations: Destinations
) -> None:
    for number in range(3):
        destinations.begin()
        destinations.check(record(number))
    assert client.looks == 1


def test_a_topic_may_get_more_partitions(
    client: Client, destinations: Destinations
) -> None:
    destinations.check(record(1)._replace(partition=1))
    late = record(2)._replace(partition=2)
    client.leaders = [1, 1, 1]
    destinations.begin()
    destinations.check(late)
    assert client.looks == 2
    for _ in range(3):
        with pytest.raises(RecordPoisoned, match="no partition 3: it has 3"):
            destinations.check(record(3)._replace(partition=3))
    # Once for each transaction, however many of its records are wrong.
    assert client.looks == 2
    destinations.begin()
    with pytest.raises(RecordPoisoned):
        destinations.check(record(3)._replace(partition=3))
    assert client.looks == 3


def test_a_partition_without_a_leader_is_waited_for(
    client: Client, destinations: Destinations
) -> None:
    client.leaders = [1, -1]
    assert refused(destinations) == "LEADER_NOT_AVAILABLE"
    client.leaders = [1, 2]
    # All records of one transaction get the same answer.
    assert refused(destinations) == "LEADER_NOT_AVAILABLE"
    assert client.looks == 1
    destinations.begin()
    destinations.check(record(1))


@pytest.mark.parametrize(
    ("code", "is_poison"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, True),
        (KafkaError.LEADER_NOT_AVAILABLE, False),
    ],
)
def test_an_error_of_the_topic_is_the_records(
    code: int, is_poison: bool, client: Client, destinations: Destinations
) -> None:
    client.error = KafkaError(code)
    with pytest.raises(DeliveryFailed) as caught:
        destinations.check(record(1))
    assert isinstance(caught.value, RecordPoisoned) == is_poison


def test_a_kafka_that_does_not_answer_is_no_fault_of_the_record(
    client: Client, destinations: Destinations
) -> None:
    client.is_away = True
    assert refused(destinations) == "_TIMED_OUT"


def test_a_partition_that_the_topic_lacks_is_poison(destinations: Destinations) -> None:
    destinations.check(record(1)._replace(partition=1))
    with pytest.raises(RecordPoisoned, match="no partition 2: it has 2"):
        destinations.check(record(2)._replace(partition=2))
