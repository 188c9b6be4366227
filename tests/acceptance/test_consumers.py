"""Consumers as processes that die between each pair of steps."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Mapping
from decimal import Decimal
from functools import partial
from hashlib import sha256
from pathlib import Path
from signal import SIGKILL
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from django.db import connections

from django_outbox.devstack.service import free_port

from ..processes import Process, Processes
from ..services import Headers, Topics, fetch, is_ready, text_of
from ..waiting import eventually
from .harvesters import Harvesters
from .tables import OutboxTable

WORKERS = 2
CUT = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


class Consumers(Processes):
    """Processes of one group; who dies is started again, as a supervisor does."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        settings = {"DJANGO_SETTINGS_MODULE": "tests.consumer_settings"}
        super().__init__({**environment, **settings})
        self.dead: list[Process] = []

    def start(self, *arguments: str, name: str = "") -> Process:
        name = name or f"consumer-{len(self.all) + 1}"
        return self.launch(
            name,
            *(sys.executable, "-m", "django", "runconsumer"),
            *("--log-format", "json", "--name", name, *arguments),
        )

    def supervise(self) -> None:
        """Start each anew that has died since the last look, under its name."""
        for process in list(self.all):
            if not process.is_running and process not in self.dead:
                assert process.exit_code() == -SIGKILL
                self.dead.append(process)
                self.start(name=process.name)


def ends_well(process: Process) -> None:
    # One that has just been started again would die of the signal.
    process.wait_for("ready")
    process.terminate()
    assert process.exit_code() == 0
    assert process.events[-1]["event"] == "stopped"


@pytest.fixture
def testapp(child_environment: dict[str, str], tmp_path: Path) -> dict[str, str]:
    return {
        **child_environment,
        "TESTAPP_GROUP": f"group-{uuid4()}",
        "TESTAPP_MARKS": str(tmp_path),
    }


def send(bootstrap_servers: str, topic: str, texts: list[str]) -> None:
    """Write messages as a harvester does, over all partitions."""
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for number, text in enumerate(texts):
        headers: Headers = [("outbox-message-id", str(uuid4()))]
        producer.produce(topic, text, str(number), headers=headers)
    assert producer.flush(15) == 0


@pytest.mark.parametrize("offsets", ["kafka", "database"])
def test_effects_happen_once_however_consumers_die(
    offsets: str,
    testapp: dict[str, str],
    topics: Topics,
    postgres: psycopg.Connection,
) -> None:
    """First while their connections to the database are cut again and again."""
    connections.close_all()
    topic = topics.create(partitions=3)
    texts = [str(number) for number in range(20)]
    deadly = [str(number) for number in range(20, 40)]
    deadly[5], deadly[15] = "die before commit", "die after commit"
    servers = testapp["KAFKA_BOOTSTRAP_SERVERS"]
    send(servers, topic, texts)
    variables = {"TESTAPP_TOPIC": topic, "TESTAPP_OFFSETS": offsets}
    with Consumers({**testapp, **variables}) as consumers:
        for _ in range(WORKERS):
            consumers.start()

        def count_effects() -> int:
            query = "SELECT count(DISTINCT text) FROM testapp_effect"
            (row,) = postgres.execute(query).fetchall()
            return int(row[0])

        def is_done() -> bool:
            consumers.supervise()
            return count_effects() == len(texts)

        cut_at = -1

        def is_done_with_cuts() -> bool:
            nonlocal cut_at
            # Once for each effect: more often, a busy machine would have none.
            if (count := count_effects()) > cut_at:
                postgres.execute(CUT)
                cut_at = count
            return is_done()

        eventually(is_done_with_cuts, what="the first effects")
        send(servers, topic, deadly)
        texts += deadly
        eventually(
            lambda: is_done() and len(consumers.dead) == 2,
            what="all effects, and two deaths",
        )
        eventually(lambda: _lag(consumers) == 0, what="nothing is left")
        for process in consumers.all:
            if process.is_running:
                ends_well(process)
        assert not any(process.all("dead_lettered") for process in consumers.all)
    effects = [row[0] for row in postgres.execute("SELECT text FROM testapp_effect")]
    assert Counter(effects) == Counter(texts)
    stashed = [row[0] for row in postgres.execute("SELECT kafka_value FROM outbox")]
    assert Counter(stashed) == Counter(texts)


def test_a_consumer_tells_its_health_and_its_figures(
    testapp: dict[str, str], topics: Topics
) -> None:
    topic, address = topics.create(), f"127.0.0.1:{free_port()}"
    send(testapp["KAFKA_BOOTSTRAP_SERVERS"], topic, [str(n) for n in range(10)])
    variables = {"TESTAPP_TOPIC": topic, "TESTAPP_METRICS_ADDRESS": address}
    with Consumers({**testapp, **variables}) as consumers:
        consumers.start().wait_for("consumer_read")
        eventually(partial(is_ready, address))
        figure = "django_outbox_consumer_processed_total"
        eventually(lambda: f"{figure}{{" in fetch(address, "/metrics")[1])
        eventually(lambda: '"} 10.0' in fetch(address, "/metrics")[1])
        assert fetch(address, "/livez")[0] == 200
        second = consumers.start()
        assert second.exit_code() == 2
        second.wait_for_log(f"CONSUMER_METRICS_ADDRESS: '{address}' cannot be bound")


def _lag(consumers: Consumers) -> int:
    readings = [p.all("consumer_read") for p in consumers.all if p.is_running]
    assert readings
    return sum(events[-1]["lag"] if events else 1 for events in readings)


def test_transforms_are_seen_once_however_consumers_die(
    testapp: dict[str, str], topics: Topics
) -> None:
    topic, output = topics.create(partitions=3), topics.create(partitions=2)
    texts = [str(number) for number in range(40)]
    texts[10] = "die in handler"
    texts[20] = "die around commit before"
    texts[30] = "die around commit after"
    servers = testapp["KAFKA_BOOTSTRAP_SERVERS"]
    send(servers, topic, texts)
    variables = {"TESTAPP_TOPIC": topic, "TESTAPP_OUTPUT": output}
    expected = [f"{text}/{number}" for text in texts for number in range(2)]
    with Consumers({**testapp, **variables}) as consumers:
        for _ in range(WORKERS):
            consumers.start()

        def is_done() -> bool:
            consumers.supervise()
            return len(consumers.dead) == 3 and bool(_last(consumers))

        eventually(is_done, what="three deaths")
        eventually(lambda: _lag(consumers) == 0, what="nothing is left")
        messages = topics.read(output, at_least=len(expected))
    assert Counter((m.value() or b"").decode() for m in messages) == Counter(expected)
    uncommitted = topics.read(output, isolation_level="read_uncommitted")
    assert len(uncommitted) >= len(expected)


def _last(consumers: Consumers) -> list[object]:
    return [p.all("consumer_read")[-1:] for p in consumers.all if p.is_running]


def test_a_zombie_inside_a_transaction_commits_nothing(
    testapp: dict[str, str], topics: Topics
) -> None:
    """It is frozen before its commit, and goes on after its successor has done it."""
    topic, output = topics.create(), topics.create()
    texts = ["1", "freeze before commit", "2"]
    send(testapp["KAFKA_BOOTSTRAP_SERVERS"], topic, texts)
    variables = {"TESTAPP_TOPIC": topic, "TESTAPP_OUTPUT": output}
    expected = [f"{text}/{number}" for text in texts for number in range(2)]
    with Consumers({**testapp, **variables}) as consumers:
        zombie = consumers.start()
        os.waitpid(zombie.pid, os.WUNTRACED)
        successor = consumers.start()
        successor.wait_for("consumer_read")
        messages = topics.read(output, at_least=len(expected))
        moment = zombie.resume()
        zombie.wait_for("membership_lost", after=moment)
        send(testapp["KAFKA_BOOTSTRAP_SERVERS"], topic, ["3"])
        messages = topics.read(output, at_least=len(expected) + 2)
        assert zombie.is_running
        assert successor.is_running
    texts = [(message.value() or b"").decode() for message in messages]
    assert Counter(texts) == Counter([*expected, "3/0", "3/1"])


def test_a_message_that_keeps_failing_becomes_a_dead_letter(
    testapp: dict[str, str], topics: Topics, postgres: psycopg.Connection
) -> None:
    topic = topics.create()
    topics.create(f"{topic}.dlt")
    texts = ["1", "fail and tell why", "2"]
    send(testapp["KAFKA_BOOTSTRAP_SERVERS"], topic, texts)
    with Consumers({**testapp, "TESTAPP_TOPIC": topic}) as consumers:
        process = consumers.start("--until-end")
        assert process.exit_code() == 0
        (told,) = process.all("dead_lettered")
    assert told["attempts"] == 2
    assert told["error"] == "LookupError"
    effects = postgres.execute("SELECT text FROM testapp_effect ORDER BY id").fetchall()
    assert effects == [("1",), ("2",)]
    (letter,) = topics.read(f"{topic}.dlt", at_least=1)
    headers = dict(letter.headers() or [])
    assert letter.value() == b"fail and tell why"
    assert headers["outbox-dlt-reason"] == letter.value()
    assert headers["outbox-dlt-error"] == b"LookupError"
    assert headers["outbox-dlt-offset"] == b"1"
    message_id = text_of(headers["outbox-message-id"])
    line = process.wait_for_log(f"{topic}/0 at offset 1 (message id {message_id})")
    told = json.loads(line)
    assert told["message"].endswith("failed: LookupError: fail and tell why")
    assert "tests/testapp/consumers.py" in told["exception"]
    assert "tell why" not in json.dumps(process.events)


def test_no_message_is_too_large_to_become_a_dead_letter(
    testapp: dict[str, str], topics: Topics, postgres: psycopg.Connection
) -> None:
    """A value that was small while it was compressed, and a bomb of headers."""
    topic = topics.create(config={"max.message.bytes": "30000000"})
    # It accepts no message without a key, and no large one.
    limits = {"cleanup.policy": "compact", "max.message.bytes": "4000"}
    topics.create(f"{topic}.dlt", config=limits)
    large = "fail " + "x" * 20_000_000
    servers = testapp["KAFKA_BOOTSTRAP_SERVERS"]
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "compression.type": "gzip",
            "message.max.bytes": 30_000_000,
        }
    )
    producer.produce(topic, large, "k1", headers=[("a", "1")])
    producer.produce(topic, "1", "k2")
    bomb: Headers = [(f"header-{n}", os.urandom(1000)) for n in range(1000)]
    producer.produce(topic, "fail with headers", headers=bomb)
    producer.produce(topic, "2", "k4")
    assert producer.flush(60) == 0
    with Consumers({**testapp, "TESTAPP_TOPIC": topic}) as consumers:
        process = consumers.start("--until-end")
        assert process.exit_code() == 0
    effects = postgres.execute("SELECT text FROM testapp_effect ORDER BY id").fetchall()
    assert effects == [("1",), ("2",)]
    first, second = topics.read(f"{topic}.dlt", at_least=2)
    headers = dict(first.headers() or [])
    assert (first.key(), first.value(), headers["a"]) == (b"k1", b"", b"1")
    assert headers["outbox-dlt-value-size"] == str(len(large)).encode()
    digest = sha256(large.encode()).hexdigest()
    assert headers["outbox-dlt-value-sha256"] == digest.encode()
    assert len(text_of(headers["outbox-dlt-reason"])) <= 1000
    headers = dict(second.headers() or [])
    assert (second.key(), second.value()) == (f"{topic}/0/2".encode(), b"")
    assert headers["outbox-dlt-headers-count"] == b"1000"
    assert headers["outbox-dlt-value-size"] == str(len("fail with headers")).encode()
    # Nor does its text fill the log.
    assert sum(map(len, process.log)) < 500_000


def test_a_large_message_that_can_be_compressed_is_kept_whole(
    testapp: dict[str, str], topics: Topics
) -> None:
    topic = topics.create()
    topics.create(f"{topic}.dlt")
    large = "fail " + "x" * 9_000_000
    producer = Producer(
        {
            "bootstrap.servers": testapp["KAFKA_BOOTSTRAP_SERVERS"],
            "compression.type": "gzip",
            "message.max.bytes": 10_000_000,
        }
    )
    producer.produce(topic, large, "k")
    assert producer.flush(60) == 0
    with Consumers({**testapp, "TESTAPP_TOPIC": topic}) as consumers:
        assert consumers.start("--until-end").exit_code() == 0
    (letter,) = topics.read(f"{topic}.dlt", at_least=1)
    assert (letter.value() or b"").decode() == large


def test_what_is_away_is_waited_for_and_what_is_wrong_is_named(
    testapp: dict[str, str],
) -> None:
    nowhere = "127.0.0.1:1"
    testapp = {**testapp, "TESTAPP_TOPIC": "orders"}
    with (
        Consumers({**testapp, "KAFKA_BOOTSTRAP_SERVERS": nowhere}) as without_kafka,
        Consumers({**testapp, "DATABASE_URL": f"postgres://{nowhere}/x"}) as without_db,
        Consumers(testapp) as wrong,
    ):
        waiting = [without_kafka.start(), without_db.start()]
        mistaken = wrong.start("--group", "biling")
        waiting[0].wait_for_log(f"Kafka at {nowhere} unavailable: connection refused")
        waiting[1].wait_for_log("unavailable, retrying")
        for process in waiting:
            process.terminate()
            assert process.exit_code(timeout=10) == 0
            assert process.events[-1]["event"] == "stopped"
        assert mistaken.exit_code() == 2
        (line,) = mistaken.log
        assert "--group: no handler for 'biling'" in line


ORDERS = 60
PLACE = f"""
from shop import orders
from shop.models import Status
for number in range({ORDERS}):
    order = orders.place(customer=f"c{{number % 5}}", sku="TEA", quantity=1, amount=3)
    if number % 3 == 0:
        orders.change(order.pk, Status.PAID if number % 2 else Status.CANCELLED)
"""


def test_the_chain_from_shop_to_kafka_to_billing_to_kafka(
    harvesters: Harvesters, table: OutboxTable, topics: Topics
) -> None:
    """A consumer dies on the way, and every account is right to the cent."""
    harvesters.start().wait_for("leader_acquired")
    placing = harvesters.run("shell", "--no-imports", "-c", PLACE, name="shop")
    consumers = [
        harvesters.run(
            *("runconsumer", "--log-format", "json", "--name", name), name=name
        )
        for name in ("billing-1", "billing-2")
    ]
    for consumer in consumers:
        consumer.wait_for("ready")
    eventually(lambda: _count(table, "billing_charge"), what="work")
    eventually(lambda: _busy(consumers), what="a busy consumer")
    _busy(consumers)[0].kill()
    assert placing.exit_code() == 0
    is_settled = len(range(0, ORDERS, 3))
    source = harvesters.environment["OUTBOX_LEADER_GROUP"].encode()
    # Each movement is told once, with its commit.
    movements = ORDERS + is_settled
    eventually(lambda: len(_told(topics, source)) >= movements, what="all movements")
    told = _told(topics, source)
    assert len(told) == movements
    owed = dict(table.execute("SELECT customer, owed::text FROM billing_account"))
    assert {event["customer"]: event["owed"] for event in told} == owed
    is_open = ORDERS - is_settled
    assert _count(table, "billing_charge") == is_open
    assert {name: Decimal(text) for name, text in owed.items()} == {
        f"c{number}": Decimal(3 * is_open) / 5 for number in range(5)
    }


TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"

PLACE_TRACED = f"""
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, use_span
from shop import orders
context = SpanContext(0x{TRACE}, 0x{SPAN}, is_remote=False, trace_flags=TraceFlags(1))
with use_span(NonRecordingSpan(context)):
    orders.place(customer="traced", sku="TEA", quantity=1, amount=3)
"""

CONSUME_TRACED = """
from django.core.management import call_command
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import set_tracer_provider
set_tracer_provider(TracerProvider())
call_command("runconsumer", log_format="json", name="billing")
"""


def test_a_trace_passes_through_every_outbox_on_its_way(
    harvesters: Harvesters, topics: Topics
) -> None:
    """From the shop to billing, and on to those who read what billing says."""
    harvesters.start().wait_for("leader_acquired")
    shell = ("shell", "--no-imports", "-c")
    placing = harvesters.run(*shell, PLACE_TRACED, name="shop")
    billing = harvesters.run(*shell, CONSUME_TRACED, name="billing")
    assert placing.exit_code() == 0
    source = harvesters.environment["OUTBOX_LEADER_GROUP"].encode()
    (traceparent,) = eventually(lambda: _traces(topics, source), what="a trace")
    _, trace, span, flags = traceparent.split("-")
    assert (trace, flags) == (TRACE, "01")
    # Billing's own span lies between.
    assert span != SPAN
    # It commits its offset: other tests have the same group.
    billing.terminate()
    assert billing.exit_code() == 0


def _traces(topics: Topics, source: bytes) -> list[str]:
    """Return the contexts in what billing said."""
    if not _told(topics, source):
        return []
    found = [dict(message.headers() or []) for message in topics.read("accounts")]
    return [
        trace.decode()
        for headers in found
        if headers["outbox-source"] == source
        and isinstance(trace := headers.get("traceparent"), bytes)
    ]


def _told(topics: Topics, source: bytes) -> list[dict[str, str]]:
    try:
        messages = topics.read("accounts")
    except KafkaException as error:
        # The first movement makes the topic.
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise
        return []
    return [
        json.loads(message.value() or b"")
        for message in messages
        if ("outbox-source", source) in (message.headers() or [])
    ]


def _count(table: OutboxTable, name: str) -> int:
    return int(table.execute(f"SELECT count(*) FROM {name}")[0][0])


def _busy(consumers: list[Process]) -> list[Process]:
    return [c for c in consumers if c.all("partitions_changed")[-1]["partitions"]]
