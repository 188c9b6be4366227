"""Retry topics: what fails is handled again later, once, also when consumers die."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from django.core.management import call_command

from django_outbox.contrib.retry_topics import retry_topic
from django_outbox.devstack.service import free_port

from ..machine import nightly
from ..services import Headers, Topics, fetch, is_ready
from ..waiting import eventually
from .test_consumers import Consumers, ends_well, send

WORKERS = 2


class Retried:
    """A topic with retry topics, their group, and its processes."""

    def __init__(
        self, environment: dict[str, str], topics: Topics, group: str, names: list[str]
    ) -> None:
        self.consumers = Consumers(environment)
        self.servers = topics.servers
        self.topic, *self.retries = names
        self.all = names
        self.group = group

    def effects(self, postgres: psycopg.Connection) -> list[str]:
        rows = postgres.execute("SELECT text FROM testapp_effect ORDER BY id")
        return [text for (text,) in rows.fetchall()]

    def is_through(self) -> bool:
        """Whether the group has committed the ends of all topics."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": self.group})
        try:
            return all(map(partial(_is_through, consumer), self.all))
        finally:
            consumer.close()


def _is_through(consumer: Consumer, topic: str) -> bool:
    numbers = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    partitions = [TopicPartition(topic, number) for number in numbers]
    ends = [consumer.get_watermark_offsets(p, timeout=10)[1] for p in partitions]
    committed = [p.offset for p in consumer.committed(partitions, timeout=10)]
    return all(end in (0, at) for at, end in zip(committed, ends, strict=True))


class Make(Protocol):
    def __call__(
        self, *delays: float, partitions: int = ..., **env: str
    ) -> Retried: ...


@pytest.fixture
def retried(
    child_environment: dict[str, str], topics: Topics, tmp_path: Path
) -> Iterator[Make]:
    """Makes topics and retry topics with these delays, in seconds."""
    made: list[Retried] = []

    def make(*delays: float, partitions: int = 1, **variables: str) -> Retried:
        topic, group = topics.create(partitions=partitions), f"g-{uuid4().hex[:8]}"
        names = [topic] + [
            topics.create(retry_topic(topic, group, number), partitions=partitions)
            for number in range(1, len(delays) + 1)
        ]
        environment = {
            **child_environment,
            "TESTAPP_GROUP": group,
            "TESTAPP_MARKS": str(tmp_path),
            "TESTAPP_TOPIC": topic,
            "TESTAPP_DELAYS": ",".join(map(str, delays)),
            **variables,
        }
        made.append(Retried(environment, topics, group, names))
        return made[-1]

    yield make
    for one in made:
        one.consumers.__exit__()


@pytest.mark.parametrize("offsets", ["kafka", "database"])
def test_an_order_that_fails_twice_is_charged_once_and_holds_up_nobody(
    offsets: str, retried: Make, topics: Topics, postgres: psycopg.Connection
) -> None:
    it = retried(0.5, 0.5, TESTAPP_OFFSETS=offsets)
    send(topics.servers, it.topic, ["in retry-2", "in retry-1", "a", "b"])
    process = it.consumers.start()
    eventually(lambda: len(it.effects(postgres)) == 4, what="all effects")
    eventually(it.is_through, what="the ends of all topics", interval=0.5)
    ends_well(process)
    assert it.effects(postgres) == ["a", "b", "in retry-1", "in retry-2"]
    (last,) = process.all("consumer_read")[-1:]
    assert (last["processed"], last["failed"], last["lag"]) == (4, 3, 0)
    assert (last["repeats"], last["dead_letters"]) == (0, 0)
    process.wait_for_log(f"waits in {it.retries[1]} for its retry")


def test_a_retry_is_not_handled_before_its_time(
    retried: Make, topics: Topics, postgres: psycopg.Connection
) -> None:
    it = retried(2.0)
    send(topics.servers, it.topic, ["in retry-1"])
    it.consumers.start()
    eventually(lambda: it.effects(postgres), what="an effect")
    (message,) = topics.read(it.retries[0], at_least=1)
    query = "SELECT extract(epoch FROM processed_at) FROM outbox_processed"
    (done_at,) = postgres.execute(query).fetchone() or (0,)
    assert float(done_at) >= message.timestamp()[1] / 1000 + 2.0


DEADLY = [
    "in retry-1 die before hand-over",
    "in retry-2 die after hand-over",
    "unless dead die after hand-over",
    "in retry-1 die before commit",
    "in retry-2 die after commit",
]
DEATHS = 1 + 2 + 1 + 1 + 1


@pytest.mark.parametrize(
    ("offsets", "batch"), [("kafka", "1"), pytest.param("database", "5", marks=nightly)]
)
def test_effects_happen_once_however_consumers_die_around_a_retry(
    offsets: str,
    batch: str,
    retried: Make,
    topics: Topics,
    postgres: psycopg.Connection,
) -> None:
    """Also those of messages without an id: the first position becomes their id."""
    variables = {"TESTAPP_OFFSETS": offsets, "TESTAPP_BATCH": batch}
    it = retried(0.3, 0.3, partitions=2, **variables)
    texts = [f"in retry-{1 + n % 2} {n}" for n in range(10)] + [*map(str, range(10))]
    send(topics.servers, it.topic, [text for n, text in enumerate(texts) if n % 3])
    without_id = [text for n, text in enumerate(texts) if n % 3 == 0] + DEADLY
    produce(topics.servers, it.topic, without_id)
    texts += DEADLY
    for _ in range(WORKERS):
        it.consumers.start()

    def is_done() -> bool:
        it.consumers.supervise()
        return set(it.effects(postgres)) == set(texts)

    eventually(is_done, what="all effects", timeout=180)
    eventually(
        lambda: is_done() and it.is_through(),
        what="the ends of all topics",
        timeout=180,
        interval=0.5,
    )
    assert len(it.consumers.dead) == DEATHS
    for process in it.consumers.all:
        assert not process.all("dead_lettered")
        if process.is_running:
            ends_well(process)
    assert Counter(it.effects(postgres)) == Counter(texts)


def produce(servers: str, topic: str, texts: list[str]) -> None:
    """Write messages without an id."""
    producer = Producer({"bootstrap.servers": servers})
    for number, text in enumerate(texts):
        producer.produce(topic, text, str(number))
    assert producer.flush(15) == 0


def test_a_transformation_is_retried_in_transactions(
    retried: Make, topics: Topics
) -> None:
    output = topics.create()
    it = retried(0.3, TESTAPP_OUTPUT=output)
    send(topics.servers, it.topic, ["in retry-1", "a"])
    it.consumers.start()
    messages = topics.read(output, at_least=4)
    values = [(message.value() or b"").decode() for message in messages]
    assert values == ["a/0", "a/1", "in retry-1/0", "in retry-1/1"]


def test_a_consumer_that_waits_is_well_and_stops_at_once(
    retried: Make, topics: Topics, postgres: psycopg.Connection
) -> None:
    address = f"127.0.0.1:{free_port()}"
    it = retried(3600.0, TESTAPP_METRICS_ADDRESS=address, TESTAPP_POLL_INTERVAL="3000")
    send(topics.servers, it.topic, ["in retry-1", "a"])
    process = it.consumers.start()
    process.wait_for_log(f"waits in {it.retries[0]} for its retry")
    eventually(lambda: it.effects(postgres) == ["a"], what="the next message")
    assigned = eventually(
        lambda: [
            e for e in process.all("partitions_changed") if len(e["partitions"]) > 1
        ]
    )
    # Several times as long as a member may be silent.
    moment = assigned[-1]["boottime_ns"]
    eventually(lambda: len(process.all("consumer_read", after=moment)) > 14)
    assert not process.all("partitions_changed", after=moment)
    last = process.all("consumer_read")[-1]
    assert (last["lag"], last["failed"], last["processed"]) == (0, 1, 1)
    assert is_ready(address)
    figures = fetch(address, "/metrics")[1]
    (line,) = [
        f for f in figures.splitlines() if f.startswith("django_outbox_consumer_lag")
    ]
    assert line.endswith(" 0.0")
    moment = process.terminate()
    assert process.exit_code() == 0
    stopped = process.wait_for("stopped")
    assert stopped["boottime_ns"] - moment < 5e9
    assert not it.is_through()


def outbox(*arguments: str) -> str:
    out = StringIO()
    call_command("outbox", "dead-letters", *arguments, stdout=out)
    return out.getvalue()


def test_after_the_last_retry_it_is_a_dead_letter_that_can_be_resent(
    retried: Make,
    topics: Topics,
    postgres: psycopg.Connection,
    tmp_path: Path,
) -> None:
    it = retried(0.2, 0.2)
    dead = topics.create(f"{it.topic}.dlt")
    send(topics.servers, it.topic, ["a"])
    headers: Headers = [("outbox-message-id", "an-id"), ("tenant", "acme")]
    producer = Producer({"bootstrap.servers": topics.servers})
    producer.produce(it.topic, "when allowed", "k", headers=headers)
    assert producer.flush(15) == 0
    process = it.consumers.start()
    told = process.wait_for("dead_lettered")
    assert (told["topic"], told["attempts"]) == (it.retries[1], 1)
    (found,) = json.loads(outbox("list", dead, "--json"))["dead_letters"]
    assert found["topic"] == it.topic
    assert found["at"] == "0/1"
    assert found["message_id"] == "an-id"
    assert (found["attempts"], found["error"]) == (3, "LookupError")
    (letter,) = topics.read(dead, at_least=1)
    names = [name for name, _ in letter.headers() or []]
    assert names.count("outbox-dlt-reason") == 3
    (tmp_path / "allowed").touch()
    assert outbox("resend", dead, "--all").startswith(f"0/0 sent to {it.topic}\n")
    eventually(lambda: it.effects(postgres) == ["a", "when allowed"])
    eventually(it.is_through, what="the ends of all topics", interval=0.5)
    ends_well(process)
    assert it.effects(postgres) == ["a", "when allowed"]
    again = topics.read(it.topic, at_least=3)[-1]
    assert again.headers() == [(n, str(v).encode()) for n, v in headers]


def test_slow_handlers_of_a_batch_do_not_end_the_membership(
    child_environment: dict[str, str],
    topics: Topics,
    tmp_path: Path,
    postgres: psycopg.Connection,
) -> None:
    """All of them together take longer than a member may be silent."""
    topic = topics.create()
    variables = {
        "TESTAPP_GROUP": f"g-{uuid4().hex[:8]}",
        "TESTAPP_MARKS": str(tmp_path),
        "TESTAPP_TOPIC": topic,
        "TESTAPP_BATCH": "20",
        "TESTAPP_POLL_INTERVAL": "3000",
    }
    send(topics.servers, topic, [f"slow {number}" for number in range(20)])
    with Consumers({**child_environment, **variables}) as consumers:
        process = consumers.start()
        count: Callable[[], bool] = lambda: _count(postgres) == 20  # noqa: E731
        eventually(count, what="all effects")
        ends_well(process)
    changes = [e["partitions"] for e in process.all("partitions_changed")]
    assert changes[:1] == [[f"{topic}/0"]]
    last = process.all("consumer_read")[-1]
    assert (last["processed"], last["repeats"], last["lag"]) == (20, 0, 0)
    # The only other change is the end.
    assert changes[1:] in ([], [[]])


def _count(postgres: psycopg.Connection) -> int:
    query = "SELECT count(*) FROM testapp_effect"
    return int((postgres.execute(query).fetchone() or (0,))[0])
