"""
The reference's own fault test, on the real clients.

One, four and eight harvesters; two of a hundred produce calls fail, and two
of a hundred deliveries that arrived are reported as failed. They start one
after the other and stop in the same order.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack
from dataclasses import replace
from itertools import count

import psycopg
import pytest

from django_outbox.harvester.adapters import Adapters
from django_outbox.harvester.harvester import Harvester
from django_outbox.relay.ports import Producer
from django_outbox.testing.faults import FaultyProducer
from tests.waiting import eventually

from ..machine import nightly
from ..services import Topics, text_of
from .harvesting import Witness, fast_options

KEYS = 10
RECORDS = 1500
WINDOW = 200


def faulty(real: Adapters, made: list[FaultyProducer]) -> Adapters:
    """The same providers, with faults round each producer."""
    seeds = count()

    def make(topic: str) -> Producer:
        producer = FaultyProducer(
            real.producer(topic),
            produce_rate=0.02,
            delivery_rate=0.02,
            seed=next(seeds),
        )
        made.append(producer)
        return producer

    return replace(real, producer=make)


@pytest.mark.parametrize(
    ("nodes", "per_key"), [(1, 0), (1, 1), pytest.param(4, 0, marks=nightly), (8, 1)]
)
def test_all_is_delivered_in_order_by_so_many_nodes(
    postgres: psycopg.Connection,
    bootstrap_servers: str,
    topics: Topics,
    nodes: int,
    per_key: int,
) -> None:
    topic = topics.create(partitions=3)
    witness = Witness()
    options = fast_options(
        bootstrap_servers,
        MAX_IN_FLIGHT=WINDOW,
        MAX_IN_FLIGHT_PER_KEY=per_key,
        RETRY_BACKOFF=0.02,
    )
    made: list[FaultyProducer] = []

    def start(number: int) -> Harvester:
        plain = Harvester(name=f"node-{number}", options=options)
        harvester = Harvester(
            name=plain.name,
            options=options,
            adapters=faulty(plain.make_adapters(), made),
            observers=[witness],
            send=lambda _event: 0,
        )
        return ends.enter_context(harvester)

    def insert(records: int) -> list[int]:
        rows = postgres.execute(
            "INSERT INTO outbox (kafka_topic, kafka_key, kafka_value)"
            " SELECT %s, n %% %s, n FROM generate_series(1, %s) AS n RETURNING id",
            [topic, KEYS, records],
        ).fetchall()
        return [row[0] for row in rows]

    with ExitStack() as ends:
        first = start(0)
        witness.wait_for("leader_acquired")
        ids = insert(RECORDS)
        running = [first, *(start(number) for number in range(1, nodes))]
        for number in range(nodes):
            witness.wait_for("ready", name=f"node-{number}")
        for harvester in running[:-1]:
            ids += insert(50)
            harvester.stop()
            assert harvester.join(30)
        ids += insert(50)
        eventually(lambda: not postgres.execute("SELECT 1 FROM outbox").fetchone())

    assert sum(producer.faults for producer in made) > 10
    by_key: defaultdict[bytes, list[int]] = defaultdict(list)
    for message in topics.read(topic):
        sent = int(text_of(dict(message.headers() or [])["outbox-id"]))
        of_key = by_key[message.key() or b""]
        is_repeat = per_key == 0 and sent in of_key
        is_next = not of_key or sent >= of_key[-1]
        assert is_next or is_repeat, "the log of a key went back"
        of_key.append(sent)
    assert sorted({sent for of_key in by_key.values() for sent in of_key}) == ids
    assert not [event for event in witness.events if event.kind == "leader_fenced"]
