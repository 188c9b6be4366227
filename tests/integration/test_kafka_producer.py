"""What only librdkafka and a real Kafka can show of the producer."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import NoReturn
from uuid import uuid4

import pytest

from django_outbox.election.solo import SoloMembership
from django_outbox.exceptions import (
    DeliveryFailed,
    ProducerBroken,
    RecordPoisoned,
)
from django_outbox.harvester.adapters import Adapters
from django_outbox.harvester.harvester import Harvester
from django_outbox.kafka.producer import KafkaProducer
from django_outbox.settings.options import OutboxSettings
from tests.contracts.clusters import NOWHERE, Reports
from tests.fakes.outbox import InMemoryOutbox
from tests.services import Topics
from tests.unit.samples import record
from tests.waiting import eventually

from .mockbroker import INIT_PRODUCER_ID, PRODUCE, MockBroker

FORKS = """
import os, sys
from django_outbox.kafka.producer import KafkaProducer
from django_outbox.settings.options import OutboxSettings
from tests.contracts.clusters import Reports
from tests.unit.samples import record

servers, topic = sys.argv[1:]
kafka = {"bootstrap.servers": servers}
producer = KafkaProducer(OutboxSettings(SOURCE="test", KAFKA=kafka))
reports = Reports()
reports.send(producer, record(1, topic=topic))
reports.wait(producer, 1)
child = os.fork()
if child == 0:
    reports.send(producer, record(2, topic=topic))
    reports.wait(producer, 2)
    sys.exit(0 if reports == [(1, None), (2, None)] else 1)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
reports.send(producer, record(3, topic=topic))
reports.wait(producer, 2)
"""


def make(servers: str, **properties: object) -> KafkaProducer:
    return KafkaProducer(
        OutboxSettings(
            SOURCE="test", KAFKA={"bootstrap.servers": servers, **properties}
        ),
        name="test",
    )


@pytest.mark.parametrize(("request_", "code"), [(PRODUCE, 45), (INIT_PRODUCER_ID, 31)])
def test_a_fatal_error_breaks_the_producer_and_not_the_harvester(
    request_: int, code: int
) -> None:
    """A number out of order; a right that is missing. The next producer goes on."""
    broker = MockBroker()
    options = OutboxSettings(SOURCE="test", KAFKA={"bootstrap.servers": broker.servers})
    outbox, made = InMemoryOutbox(), []

    def produce(topic: str) -> KafkaProducer:
        made.append(KafkaProducer(options).connect(topic))
        return made[-1]

    def not_in_use(*_: object) -> NoReturn:
        raise AssertionError("only with DELIVERY = exactly-once")

    harvester = Harvester(
        options=options,
        adapters=Adapters(
            table=lambda _: outbox,
            reading=lambda *_: outbox,
            producer=produce,
            transactions=not_in_use,
            membership=SoloMembership,
        ),
        send=lambda _: 0,
    )

    def drain() -> None:
        def is_over() -> bool:
            assert harvester.is_alive
            return not outbox.records()

        eventually(is_over)

    with harvester:
        if request_ == PRODUCE:
            outbox.insert("t", "k")
            drain()
        broker.refuse(request_, code)
        for number in range(5):
            outbox.insert("t", f"k{number}")
        drain()
    assert len(made) == 2


def test_a_file_that_is_missing_is_the_fault_of_no_record(reports: Reports) -> None:
    """Somebody replaces it just now: each record would count as failed."""
    missing = {"security.protocol": "ssl", "ssl.ca.location": "/nowhere/ca.pem"}
    producer = make(NOWHERE, **missing)

    for is_apart in (False, True):
        count, error = reports.send(producer, record(1), apart=is_apart)
        assert count == 0
        assert isinstance(error, ProducerBroken)
        assert error.code == "NO_CLIENT"
        assert "ssl.ca.location" in str(error)


@pytest.fixture
def reports() -> Reports:
    return Reports()


@pytest.mark.parametrize(
    ("key", "partition"),
    [("foobar", 6), ("abc", 7), ("a-little-bit-long-string", 2), ("21", 0)],
)
def test_a_key_goes_where_java_clients_send_it(
    bootstrap_servers: str, topics: Topics, reports: Reports, key: str, partition: int
) -> None:
    topic, producer = topics.create(partitions=10), make(bootstrap_servers)

    reports.send(producer, record(1, key, topic=topic))
    reports.wait(producer, 1)

    (message,) = topics.read(topic, at_least=1)
    assert message.partition() == partition


def test_a_topic_that_the_broker_creates_by_itself_gets_its_record(
    bootstrap_servers: str, topics: Topics, reports: Reports
) -> None:
    topic, producer = f"test-{uuid4()}", make(bootstrap_servers)

    started = time.monotonic()
    reports.send(producer, record(1, topic=topic))
    assert time.monotonic() - started < 1.0
    reports.wait(producer, 1)

    assert reports == [(1, None)]
    assert len(topics.read(topic, at_least=1)) == 1


def test_a_topic_that_was_missing_is_found_once_it_exists(
    bootstrap_servers: str, topics: Topics, reports: Reports
) -> None:
    topic = f"test-{uuid4()}"
    producer = make(bootstrap_servers, **{"allow.auto.create.topics": False})
    reports.send(producer, record(1, topic=topic))
    reports.wait(producer, 1)
    assert isinstance(reports[0][1], RecordPoisoned)

    topics.create(topic)

    def is_found() -> bool:
        if not reports.send(producer, record(2, topic=topic)).queued:
            return False
        reports.wait(producer, len(reports) + 1)
        return reports[-1][1] is None

    eventually(is_found, meanwhile=lambda: producer.poll(0.2))


def test_a_cluster_that_is_away_fails_the_record_and_blames_it_not(
    reports: Reports,
) -> None:
    options = OutboxSettings(
        SOURCE="test",
        KAFKA={"bootstrap.servers": NOWHERE},
        DELIVERY_TIMEOUT=0.5,
        # With any number, the relay watches the time.
        MAX_IN_FLIGHT_PER_KEY=1,
    )
    producer = KafkaProducer(options)

    started = time.monotonic()
    reports.send(producer, record(1))
    assert time.monotonic() - started < 0.4
    reports.wait(producer, 1)

    ((_, error),) = reports
    assert isinstance(error, DeliveryFailed)
    assert not isinstance(error, RecordPoisoned)
    assert error.retriable
    assert error.code == "_MSG_TIMED_OUT"


def test_a_full_queue_takes_records_again_after_a_poll(
    bootstrap_servers: str, topics: Topics, reports: Reports
) -> None:
    topic = topics.create()
    producer = make(bootstrap_servers, **{"queue.buffering.max.messages": 2})
    left = [record(number, topic=topic) for number in range(20)]

    while left:
        count, error = reports.send(producer, *left)
        assert error is None
        assert count <= 2
        del left[:count]
        reports.take(producer.poll(0.05))
    reports.wait(producer, 20)

    assert sorted(reports) == [(number, None) for number in range(20)]


def test_a_record_that_no_queue_can_hold_is_poison(
    bootstrap_servers: str, topics: Topics, reports: Reports
) -> None:
    """Once the queue is empty; until then it may be room that is missing."""
    topic = topics.create()
    producer = make(bootstrap_servers, **{"queue.buffering.max.kbytes": 4})
    large = record(2, topic=topic, value="v" * 5000)

    assert reports.send(producer, record(1, topic=topic), large) == (1, None)
    reports.wait(producer, 1)
    count, error = reports.send(producer, large)
    reports.send(producer, record(3, topic=topic))
    reports.wait(producer, 2)

    assert count == 0
    assert isinstance(error, RecordPoisoned)
    assert "queue.buffering.max.kbytes" in str(error)
    assert reports == [(1, None), (3, None)]


def test_close_drops_what_is_queued_without_waiting_or_reporting(
    reports: Reports,
) -> None:
    producer = make(NOWHERE)
    reports.send(producer, record(1))

    started = time.monotonic()
    producer.close()

    assert time.monotonic() - started < 1.0
    assert reports == []


def test_a_child_process_makes_its_own_client_and_ends_well(
    bootstrap_servers: str, topic: str, topics: Topics
) -> None:
    command = [sys.executable, "-c", FORKS, bootstrap_servers, topic]

    subprocess.run(command, check=True, timeout=60)

    messages = topics.read(topic, at_least=3)
    ids = [dict(message.headers() or [])["outbox-id"] for message in messages]
    assert ids == [b"1", b"2", b"3"]


def test_of_equal_messages_those_behind_a_refusal_are_not_in_the_log(
    bootstrap_servers: str, topics: Topics, reports: Reports
) -> None:
    """The first one is, and must not be taken for one of the others."""
    topic = topics.create(config={"max.message.bytes": "2000"})
    producer = make(bootstrap_servers, **{"batch.num.messages": 1})
    large = record(2, topic=topic)._replace(
        header_keys=["a"], header_values=["x" * 3000]
    )

    reports.send(producer, record(1, topic=topic), large, record(3, topic=topic))
    eventually(
        lambda: producer._errors.fault,
        meanwhile=lambda: reports.take(producer.poll(0.1)),
    )
    reports.take(producer.purge())

    (message,) = topics.read(topic)
    assert dict(message.headers() or [])["outbox-id"] == b"1"
    assert [number for number, error in reports if error is None] == [1]
    assert isinstance(dict(reports)[2], RecordPoisoned)


def test_a_topic_that_was_missing_at_the_connection_is_proven_later(
    bootstrap_servers: str, topics: Topics, reports: Reports
) -> None:
    name = f"late-{uuid4()}"
    producer = make(bootstrap_servers, **{"allow.auto.create.topics": False})
    producer.connect(name)
    topics.create(name)

    reports.send(producer, record(1, topic=name))
    reports.wait(producer, 1)

    assert reports == [(1, None)]
    assert producer.proven_topics == {name}
