"""What the driver does to a transactional client, and the client makes of it."""

from __future__ import annotations

import contextlib
import gc
import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psutil
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from django_outbox.exceptions import (
    KafkaUnavailable,
    LedgerRefused,
    ProducerBroken,
    RecordPoisoned,
)
from django_outbox.kafka.client_errors import ClientErrors
from django_outbox.kafka.transactions import KafkaTransactions
from tests.contracts.test_transactions import opened, sent
from tests.contracts.transactions import KafkaCluster
from tests.services import Topics
from tests.unit.samples import record
from tests.waiting import eventually


class Wrapped:
    """A client that does what a real one does, but for one thing."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


class Forgetful(Wrapped):
    """A client whose flush loses the error that the driver has raised."""

    def flush(self, timeout: float) -> int:
        with contextlib.suppress(KafkaException, SystemError):
            self._client.flush(timeout)
        raise SystemError("returned NULL without setting an exception")


class Cut(Wrapped):
    """A client whose connections break when it commits."""

    def __init__(self, client: Any, ours: set[int], servers: str) -> None:
        super().__init__(client)
        self._connections = ours
        self._servers = servers

    def commit_transaction(self, timeout: float) -> None:
        for descriptor in self._connections & connections(self._servers):
            cut(descriptor, port_of(self._servers))
        self._client.commit_transaction(timeout)


class Refused(Wrapped):
    """A client that meets a broker which refuses it, while records are under way."""

    def __init__(self, client: Any, errors: ClientErrors) -> None:
        super().__init__(client)
        self._errors = errors

    def flush(self, timeout: float) -> int:
        self._errors.callbacks["error_cb"](KafkaError(KafkaError._TRANSPORT))
        return int(self._client.flush(timeout))


class Hurried(Wrapped):
    """A client that has no time to abort a transaction."""

    def abort_transaction(self, timeout: float) -> None:
        self._client.abort_transaction(0.0)


class Full(Wrapped):
    """A client whose queue stays full."""

    def __len__(self) -> int:
        return 1

    def produce(self, *arguments: object, **options: object) -> None:
        raise BufferError


def port_of(servers: str) -> int:
    return int(servers.rpartition(":")[2])


def connections(servers: str) -> set[int]:
    """Return the descriptors of this process's connections to a broker."""
    return {
        connection.fd
        for connection in psutil.Process().net_connections("tcp")
        if connection.raddr and connection.raddr.port == port_of(servers)
    }


def cut(descriptor: int, port: int) -> None:
    """End what is read of a connection; the client may have closed it meanwhile."""
    with (
        contextlib.suppress(OSError),
        socket.fromfd(descriptor, socket.AF_INET, socket.SOCK_STREAM) as connection,
    ):
        if connection.getpeername()[1] == port:
            connection.shutdown(socket.SHUT_RD)


def cut_at_commit(
    transactions: KafkaTransactions, others: set[int], servers: str
) -> None:
    """Have the next commit break all connections that were not there before."""
    ours = connections(servers) - others
    assert ours
    turn = transactions._turns[0]
    turn.client = Cut(turn.client, ours, servers)  # type: ignore[assignment]


def clients() -> int:
    """Return how many producers this process has."""
    gc.collect()
    return sum(isinstance(one, Producer) for one in gc.get_objects())


@pytest.fixture
def cluster(bootstrap_servers: str) -> Iterator[KafkaCluster]:
    cluster = KafkaCluster(bootstrap_servers)
    yield cluster
    cluster.close()


def forgetful(cluster: KafkaCluster) -> KafkaTransactions:
    transactions = opened(cluster)
    assert isinstance(transactions, KafkaTransactions)
    turn = transactions._turns[0]
    turn.client = Forgetful(turn.client)  # type: ignore[assignment]
    return transactions


def test_a_fence_is_told_when_the_driver_has_lost_the_error(
    cluster: KafkaCluster,
) -> None:
    topic, transactions = cluster.create(), forgetful(cluster)
    opened(cluster)

    with pytest.raises(ProducerBroken) as caught:
        sent(transactions, record(1, topic=topic))

    assert caught.value.is_fenced


def test_a_leader_that_was_fenced_leaves_no_client(cluster: KafkaCluster) -> None:
    """The driver keeps the exceptions of a callback, and they kept the client."""
    topic, before = cluster.create(), clients()
    transactions = opened(cluster)
    assert sent(transactions, record(1, topic=topic)) is None
    successor = opened(cluster)

    code = ""
    try:
        sent(transactions, record(2, topic=topic))
    except ProducerBroken as error:
        code = error.code
        # As the relay does it: while it handles the error.
        transactions.close()

    assert code == "_FENCED"
    successor.close()
    assert clients() == before


def test_a_transaction_that_cannot_be_aborted_leaves_no_client(
    cluster: KafkaCluster,
) -> None:
    """The driver keeps the first error if it raises another one in its handler."""
    topic, before = cluster.create(), clients()
    transactions = opened(cluster)
    assert isinstance(transactions, KafkaTransactions)
    turn = transactions._turns[0]
    turn.client = Hurried(turn.client)  # type: ignore[assignment]

    with contextlib.suppress(ProducerBroken):
        sent(transactions, record(1, topic=topic), may_commit=lambda: False)
    transactions.close()

    del turn
    assert clients() == before


def test_a_connection_that_breaks_during_a_commit_breaks_the_client(
    cluster: KafkaCluster, bootstrap_servers: str
) -> None:
    """librdkafka asks again, and the second request could end the next transaction."""
    topic, others = cluster.create(), connections(bootstrap_servers)
    transactions = opened(cluster)
    assert isinstance(transactions, KafkaTransactions)
    assert sent(transactions, record(1, topic=topic)) is None
    cut_at_commit(transactions, others, bootstrap_servers)

    with pytest.raises(ProducerBroken, match="a connection broke"):
        sent(transactions, record(2, topic=topic))

    # Whether it was committed, the ledger says.
    last = transactions.open()
    assert last is not None
    assert len(cluster.read(topic)) == last.records[-1].id


def test_a_connection_that_breaks_before_a_commit_breaks_nothing(
    cluster: KafkaCluster,
) -> None:
    """Otherwise one broker that refuses this client would stop all records."""
    topic, transactions = cluster.create(), opened(cluster)
    assert isinstance(transactions, KafkaTransactions)
    turn = transactions._turns[0]
    turn.client = Refused(turn.client, transactions._errors)  # type: ignore[assignment]
    assert sent(transactions, record(1, topic=topic)) is None


def test_a_connection_that_breaks_during_an_announcement_is_replaced(
    cluster: KafkaCluster, bootstrap_servers: str
) -> None:
    topic, others = cluster.create(), connections(bootstrap_servers)
    transactions = opened(cluster)
    assert isinstance(transactions, KafkaTransactions)
    cut_at_commit(transactions, others, bootstrap_servers)

    with pytest.raises(KafkaUnavailable, match="A connection broke"):
        transactions._announce()

    assert transactions.open() is None
    assert sent(transactions, record(1, topic=topic)) is None


def test_a_ledger_that_its_topic_refuses_is_told(
    cluster: KafkaCluster, topics: Topics
) -> None:
    topic, transactions = cluster.create(), opened(cluster)
    assert isinstance(transactions, KafkaTransactions)
    topics.configure(transactions._topic, "max.message.bytes", "50")

    with pytest.raises(LedgerRefused, match=f"'{transactions._topic}' refused it: "):
        eventually(lambda: sent(transactions, record(1, topic=topic)), interval=0)


def test_an_error_that_nobody_can_tell_breaks_the_client(
    cluster: KafkaCluster,
) -> None:
    topic, transactions = cluster.create(), forgetful(cluster)

    with pytest.raises(ProducerBroken) as caught:
        sent(transactions, record(1, topic=topic))

    assert not caught.value.is_fenced
    assert cluster.read(topic) == []


@pytest.mark.parametrize("most", [1, 3, 5])
def test_a_queue_smaller_than_the_transaction_is_waited_for(
    bootstrap_servers: str, most: int
) -> None:
    """The ledger meets it full, and so may any record."""
    with closing(KafkaCluster(bootstrap_servers)) as cluster:
        topic = cluster.create()
        limit = {"queue.buffering.max.messages": most}
        transactions = opened(cluster, PRODUCER_KAFKA=limit)

        assert sent(transactions, *[record(n, topic=topic) for n in range(5)]) is None
        assert len(cluster.read(topic)) == 5


def test_a_record_that_no_queue_can_hold_is_poison(bootstrap_servers: str) -> None:
    with closing(KafkaCluster(bootstrap_servers)) as cluster:
        topic = cluster.create()
        limit = {"queue.buffering.max.kbytes": 4}
        transactions = opened(cluster, PRODUCER_KAFKA=limit)
        good = record(1, topic=topic)
        large = record(2, topic=topic, value="v" * 5000)

        faults = sent(transactions, good, large)

        assert faults is not None
        ((found, error),) = faults
        assert found == large
        assert isinstance(error, RecordPoisoned)
        assert (error.code, error.is_certain) == ("_QUEUE_FULL", True)
        assert sent(transactions, good) is None


def test_a_queue_that_stays_full_aborts_the_transaction(bootstrap_servers: str) -> None:
    with closing(KafkaCluster(bootstrap_servers)) as cluster:
        topic = cluster.create()
        transactions: Any = opened(cluster)
        for turn in transactions._turns:
            turn.client = Full(turn.client)

        assert sent(transactions, record(1, topic=topic)) == []
        for turn in transactions._turns:
            turn.client = turn.client._client
        assert sent(transactions, record(1, topic=topic)) is None
