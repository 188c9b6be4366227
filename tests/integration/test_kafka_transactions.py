"""What the driver does to a transactional client, and the client makes of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException

from django_outbox.exceptions import ProducerBroken
from django_outbox.kafka.transactions import KafkaTransactions
from tests.contracts.test_transactions import opened, sent
from tests.contracts.transactions import KafkaCluster
from tests.unit.samples import record


class Forgetful:
    """A client whose flush loses the error that the driver has raised."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def flush(self, timeout: float) -> int:
        with contextlib.suppress(KafkaException, SystemError):
            self._client.flush(timeout)
        raise SystemError("returned NULL without setting an exception")


@pytest.fixture
def cluster(bootstrap_servers: str) -> Iterator[KafkaCluster]:
    cluster = KafkaCluster(bootstrap_servers)
    yield cluster
    cluster.close()


def forgetful(cluster: KafkaCluster) -> KafkaTransactions:
    transactions = opened(cluster)
    assert isinstance(transactions, KafkaTransactions)
    transactions._client = Forgetful(transactions._client)  # type: ignore[assignment]
    return transactions


def test_a_fence_is_told_when_the_driver_has_lost_the_error(
    cluster: KafkaCluster,
) -> None:
    topic, transactions = cluster.create(), forgetful(cluster)
    opened(cluster)

    with pytest.raises(ProducerBroken) as caught:
        sent(transactions, record(1, topic=topic))

    assert caught.value.is_fenced


def test_an_error_that_nobody_can_tell_breaks_the_client(
    cluster: KafkaCluster,
) -> None:
    topic, transactions = cluster.create(), forgetful(cluster)

    with pytest.raises(ProducerBroken) as caught:
        sent(transactions, record(1, topic=topic))

    assert not caught.value.is_fenced
    assert cluster.read(topic) == []
