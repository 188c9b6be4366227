"""
Any number of records of a key in flight, on a real broker that refuses some.

A later record of a key never reaches the log before the one that was refused, and
all other keys flow meanwhile.
"""

from __future__ import annotations

from collections import defaultdict

import psycopg
import pytest
from confluent_kafka import Message

from django_outbox.harvester.harvester import Harvester

from ..services import Topics, text_of
from ..waiting import eventually
from .harvesting import Witness, fast_options

RECORDS = 400
"""Of each key."""

REFUSED = 51
"""Which one of the first key the broker refuses."""

WINDOW = 200


def insert(postgres: psycopg.Connection, topic: str) -> int:
    """Write records of two keys in turn; return the id of the one that is too large."""
    postgres.execute(
        "INSERT INTO outbox (kafka_topic, kafka_key, kafka_value)"
        " SELECT %(topic)s, key,"
        " CASE WHEN key = 'a' AND n = %(refused)s THEN repeat('x', 100000) ELSE 'v' END"
        " FROM generate_series(1, %(records)s) AS n, unnest(ARRAY['a', 'b']) AS key"
        " ORDER BY n, key",
        {"topic": topic, "refused": REFUSED, "records": RECORDS},
    )
    row = postgres.execute(
        "SELECT id FROM outbox WHERE length(kafka_value) > 1000"
    ).fetchone()
    assert row is not None
    return int(row[0])


def ids_by_key(messages: list[Message]) -> dict[bytes, list[int]]:
    ids: defaultdict[bytes, list[int]] = defaultdict(list)
    for message in messages:
        headers = dict(message.headers() or [])
        ids[message.key() or b""].append(int(text_of(headers["outbox-id"])))
    return ids


def firsts(ids: list[int]) -> list[int]:
    """Drop repeats."""
    return list(dict.fromkeys(ids))


def waiting(postgres: psycopg.Connection) -> int:
    row = postgres.execute("SELECT count(*) FROM outbox").fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.parametrize("policy", ["park", "block-key"])
def test_nothing_of_its_key_passes_a_record_that_the_broker_refuses(
    postgres: psycopg.Connection, bootstrap_servers: str, topics: Topics, policy: str
) -> None:
    topic = topics.create(config={"max.message.bytes": "20000"})
    refused = insert(postgres, topic)
    options = fast_options(
        bootstrap_servers,
        MAX_IN_FLIGHT=WINDOW,
        POISON_POLICY=policy,
        PARK_AFTER=1,
        RETRY_BACKOFF=0.05,
    )

    with Harvester(name="one", options=options, observers=[Witness()]):
        if policy == "block-key":
            left = RECORDS - REFUSED + 1
            eventually(lambda: waiting(postgres) == left)
            ids = ids_by_key(topics.read(topic))
            assert len(firsts(ids[b"b"])) == RECORDS
            assert len(firsts(ids[b"a"])) == REFUSED - 1
            assert max(ids[b"a"]) < refused
            shorten = "UPDATE outbox SET kafka_value = 'v' WHERE id = %s"
            postgres.execute(shorten, [refused])
        eventually(lambda: waiting(postgres) == 0)

    ids = ids_by_key(topics.read(topic))
    for key in (b"a", b"b"):
        assert firsts(ids[key]) == sorted(set(ids[key]))
    parked = postgres.execute("SELECT id FROM outbox_parked").fetchall()
    assert len(firsts(ids[b"b"])) == RECORDS
    if policy == "park":
        assert parked == [(refused,)]
        assert refused not in ids[b"a"]
        assert len(firsts(ids[b"a"])) == RECORDS - 1
    else:
        assert parked == []
        assert len(firsts(ids[b"a"])) == RECORDS
    repeats = sum(len(found) - len(set(found)) for found in ids.values())
    assert repeats <= WINDOW


def test_a_refusal_ends_the_producer_before_any_time_out(
    postgres: psycopg.Connection, bootstrap_servers: str, topics: Topics
) -> None:
    """Nothing else is written meanwhile that would show that it is broken."""
    topic = topics.create(config={"max.message.bytes": "20000"})
    options = fast_options(
        bootstrap_servers,
        DELIVERY_TIMEOUT=60.0,
        POISON_POLICY="park",
        PARK_AFTER=1,
    )
    witness = Witness()

    with Harvester(name="one", options=options, observers=[witness]):
        # The topic is proven, so that what follows goes in one batch.
        postgres.execute(
            "INSERT INTO outbox (kafka_topic, kafka_key) VALUES (%s, 'b')", [topic]
        )
        eventually(lambda: waiting(postgres) == 0)
        refused = insert(postgres, topic)
        eventually(lambda: waiting(postgres) == 0, timeout=30)

    ids = ids_by_key(topics.read(topic))
    assert len(firsts(ids[b"a"])) == RECORDS - 1
    assert len(firsts(ids[b"b"])) == RECORDS + 1
    parked = postgres.execute("SELECT id, attempts FROM outbox_parked").fetchall()
    assert parked == [(refused, 1)]


def test_a_topic_that_takes_small_batches_only_interrupts_the_others_once(
    postgres: psycopg.Connection,
    bootstrap_servers: str,
    topics: Topics,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each of its records is small enough, and a thousand of them are not."""
    narrow = topics.create(partitions=1, config={"max.message.bytes": "20000"})
    options = fast_options(bootstrap_servers)
    caplog.set_level("INFO", logger="django_outbox.kafka.batch_limit")

    def fill() -> None:
        postgres.execute(
            "INSERT INTO outbox (kafka_topic, kafka_key, kafka_value)"
            " SELECT %s, n %% 7, repeat('x', 200) FROM generate_series(1, 3000) AS n",
            [narrow],
        )

    with Harvester(name="one", options=options, observers=[Witness()]):
        fill()
        eventually(lambda: waiting(postgres) == 0)
        assert "Batches have at most 20000 bytes" in caplog.text
        caplog.clear()
        sent = len(topics.read(narrow))
        fill()
        eventually(lambda: waiting(postgres) == 0)

    assert [r.getMessage() for r in caplog.records if r.levelname != "INFO"] == []
    assert len(topics.read(narrow)) == sent + 3000, "none of them was sent again"
