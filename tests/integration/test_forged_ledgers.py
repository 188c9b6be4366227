"""
Attacks on the ledger topic of an exactly-once outbox: nothing unsent is purged.

One forged ledger said that every id was sent, and the next harvester deleted all
rows that waited. Here each way to bring one there is tried on real services.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Producer
from django.db import transaction

from django_outbox import InvalidMessage, stash
from django_outbox.harvester.harvester import Harvester
from django_outbox.models import OutboxRecord, ParkedRecord
from django_outbox.settings.options import OutboxSettings
from tests.waiting import eventually

from ..services import Topics, text_of
from .harvesting import fast_options
from .mockbroker import produce_with_header_name

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])

EVERY_ID = struct.pack(">qqqH", -(2**63), 2**63 - 1, 2**63 - 1, 1)
"""A range of all ids there are, of records of any age."""
TWO_APART = struct.pack(">qqqH", -(2**63), 2**63 - 2, 2**63 - 1, 2)
"""The same for the even ids, as one of two clusters has them."""
STEP_ZERO = struct.pack(">qqqH", 1, 9, 9, 0)
FIELDS = [
    *(("ledger-format", "2"), ("ledger-ranges", "1")),
    *(("outbox-ledger-format", "1"), ("outbox-ledger-ranges", "1")),
]
"""Headers of a ledger with one range, by any name that they ever had."""
NO_LEDGER = "outbox_topic_name"


@pytest.fixture
def victim(bootstrap_servers: str) -> OutboxSettings:
    """An outbox of the database `default`, which is not led yet."""
    return fast_options(
        bootstrap_servers, DELIVERY="exactly-once", DELIVERY_TIMEOUT=3.0
    )


@pytest.fixture
def unchecked(other_postgres: psycopg.Connection) -> Iterator[psycopg.Connection]:
    """The database `other`, whose outbox takes any topic, as goharvest's does."""
    row = other_postgres.execute(
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = %s",
        [NO_LEDGER],
    ).fetchone()
    assert row is not None
    other_postgres.execute(f"ALTER TABLE outbox DROP CONSTRAINT {NO_LEDGER}")
    yield other_postgres
    other_postgres.execute("DELETE FROM outbox")
    other_postgres.execute(f"ALTER TABLE outbox ADD CONSTRAINT {NO_LEDGER} {row[0]}")


def write(topic: str, numbers: Sequence[int]) -> None:
    with transaction.atomic():
        for number in numbers:
            stash(topic, key="k", value=str(number))


def is_empty(alias: str) -> bool:
    return not OutboxRecord.objects.using(alias).exists()


def delivered(topics: Topics, topic: str) -> list[int]:
    return [int(message.value() or b"") for message in topics.read(topic)]


def forge(
    options: OutboxSettings,
    value: bytes | None,
    headers: Sequence[tuple[str, str]] = FIELDS,
) -> None:
    """Write into the ledger topic, as somebody whom Kafka lets."""
    producer = Producer(dict(options.KAFKA))
    for _ in range(12):
        producer.produce(options.ledger_topic, value, "0", 0, headers=[*headers])
    assert producer.flush(15.0) == 0, "the broker did not take it"


def test_no_row_of_an_outbox_reaches_the_ledger_of_another(
    victim: OutboxSettings,
    bootstrap_servers: str,
    topics: Topics,
    unchecked: psycopg.Connection,
) -> None:
    topic = topics.create()
    topics.create(victim.ledger_topic)
    unchecked.execute(
        "INSERT INTO outbox (kafka_topic, kafka_key, kafka_value_bytes,"
        " kafka_header_keys, kafka_header_values, kafka_partition)"
        " VALUES (%s, '0', %s, %s, %s, 0)",
        [
            victim.ledger_topic,
            EVERY_ID,
            [name for name, _ in FIELDS[:2]],
            [text for _, text in FIELDS[:2]],
        ],
    )
    attacker = fast_options(bootstrap_servers, POISON_POLICY="park", PARK_AFTER=1)
    with Harvester(database="other", options=attacker):
        eventually(lambda: is_empty("other"))
    write(topic, range(20))
    with Harvester(database="default", options=victim):
        eventually(lambda: is_empty("default"))

    assert delivered(topics, topic) == [*range(20)]
    (parked,) = ParkedRecord.objects.using("other")
    assert parked.last_error.startswith("INVALID_TOPIC")


def test_the_table_takes_no_row_for_any_ledger(
    other_postgres: psycopg.Connection,
) -> None:
    for statement in (
        "INSERT INTO outbox (kafka_topic, kafka_key) VALUES (%s, 'k')",
        "INSERT INTO outbox_staged (kafka_topic, kafka_key, not_before)"
        " VALUES (%s, 'k', now())",
    ):
        with pytest.raises(psycopg.errors.CheckViolation, match="topic_name"):
            other_postgres.execute(statement, ["of-another-outbox.ledger"])


def test_stash_takes_no_message_for_any_ledger() -> None:
    with pytest.raises(InvalidMessage, match="reserved"), transaction.atomic():
        stash("of-another-outbox.ledger", key="0", value=EVERY_ID)


@pytest.mark.parametrize(
    ("value", "headers"),
    [
        pytest.param(EVERY_ID, FIELDS, id="every id"),
        pytest.param(TWO_APART, FIELDS, id="every other id"),
        pytest.param(STEP_ZERO, FIELDS, id="step 0"),
        pytest.param(
            TWO_APART, [*FIELDS, ("outbox-message-id", str(uuid4()))], id="relayed"
        ),
        pytest.param(b"junk", [], id="junk"),
        pytest.param(None, [], id="tombstone"),
    ],
)
def test_a_forged_ledger_purges_nothing_and_stops_nobody(
    victim: OutboxSettings,
    topics: Topics,
    value: bytes | None,
    headers: list[tuple[str, str]],
) -> None:
    topic = topics.create()
    write(topic, range(10))
    with Harvester(database="default", options=victim):
        eventually(lambda: is_empty("default"))
    write(topic, range(10, 30))
    forge(victim, value, headers)

    with Harvester(database="default", options=victim):
        eventually(lambda: is_empty("default"))
        write(topic, range(30, 40))
        eventually(lambda: is_empty("default"))

    assert delivered(topics, topic) == [*range(40)]


def test_a_header_that_the_driver_cannot_read_stops_nobody(
    victim: OutboxSettings, topics: Topics
) -> None:
    topic = topics.create()
    write(topic, range(10))
    with Harvester(database="default", options=victim):
        eventually(lambda: is_empty("default"))
    for _ in range(30):
        servers = str(victim.KAFKA["bootstrap.servers"])
        produce_with_header_name(servers, victim.ledger_topic, EVERY_ID, b"\xff\xfe")
    write(topic, range(10, 30))

    with Harvester(database="default", options=victim):
        eventually(lambda: is_empty("default"))

    assert delivered(topics, topic) == [*range(30)]


def test_a_ledger_with_the_right_timeline_and_ranges_purges_nothing_of_one_cluster(
    victim: OutboxSettings, topics: Topics
) -> None:
    """Ranges are what several clusters write; a cluster alone believes none."""
    topic = topics.create()
    write(topic, range(10))
    with Harvester(database="default", options=victim):
        eventually(lambda: is_empty("default"))
    last = topics.read(victim.ledger_topic)[-1]
    timeline = {name: text_of(value) for name, value in last.headers() or () if value}[
        "outbox-ledger-timeline"
    ]
    write(topic, range(10, 30))
    forge(victim, TWO_APART, [*FIELDS, ("outbox-ledger-timeline", timeline)])

    with Harvester(database="default", options=victim):
        eventually(lambda: is_empty("default"))

    assert delivered(topics, topic) == [*range(30)]
