"""What operators switch on: archive, metrics, client properties, table name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

import pytest

from django_outbox.devstack.service import free_port

from ..services import Topics, fetch, is_ready
from ..waiting import eventually
from .auditing import deliveries
from .conftest import environment_of
from .harvesters import Harvesters
from .tables import OutboxTable, Server


def test_the_archive_keeps_what_was_sent(
    harvesters: Harvesters, table: OutboxTable, topics: Topics, topic: str
) -> None:
    ids = table.insert(topic, "key", "value", count=5, headers=(("a", "1"),))
    before = table.execute("SELECT id, message_id, create_time FROM {outbox}")
    harvesters.start(OUTBOX_ARCHIVE="1")
    table.wait_until_empty()
    after = table.execute(
        "SELECT id, message_id, create_time FROM {archive}"
        " WHERE kafka_value = 'value' AND kafka_header_keys = '{{a}}' ORDER BY id"
    )
    assert after == sorted(before)
    assert [d.id for d in deliveries(topics.read(topic))] == ids


def test_metrics_and_health_are_served(
    harvesters: Harvesters, table: OutboxTable, topic: str
) -> None:
    address = f"127.0.0.1:{free_port()}"
    leader = harvesters.start(
        OUTBOX_METRICS_ADDRESS=address, OUTBOX_METER_INTERVAL="0.2"
    )
    leader.wait_for("leader_acquired")
    table.insert(topic, "secret-key", "secret-value", count=7)
    table.wait_until_empty()
    eventually(
        lambda: "django_outbox_relayed_total 7.0" in fetch(address, "/metrics")[1],
        what=lambda: fetch(address, "/metrics")[1],
    )
    # The meter tells the counts at once; the times come with the next reading.
    eventually(
        lambda: 1 <= delivery_times(address) <= 7,
        what=lambda: fetch(address, "/metrics")[1],
    )
    status, text = fetch(address, "/metrics")
    assert status == 200
    assert "secret" not in text
    for path in ("/livez", "/healthz", "/readyz"):
        assert fetch(address, path)[0] == 200, path
    assert fetch(address, "/elsewhere")[0] == 404
    leader.terminate()
    assert leader.exit_code() == 0


def test_a_process_that_stands_by_knows_the_backlog_too(
    harvesters: Harvesters, table: OutboxTable, topic: str
) -> None:
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    variables = {"OUTBOX_METER_INTERVAL": "0.2", "OUTBOX_READY_AGE": "60"}
    leader = harvesters.start(OUTBOX_METRICS_ADDRESS=addresses[0], **variables)
    leader.wait_for("leader_acquired")
    standby = harvesters.start(OUTBOX_METRICS_ADDRESS=addresses[1], **variables)
    standby.wait_for("ready")
    for address in addresses:
        eventually(partial(is_ready, address))

    # Its partition does not exist: it stays in the table.
    table.insert(topic, "stays", partition=99)
    table.execute("UPDATE {outbox} SET create_time = now() - interval '2 minutes'")
    for address in addresses:
        status, text = eventually(partial(not_ready, address), what="an old record")
        assert status == 503
        assert "the oldest record is 12" in text
        assert "READY_AGE (60 s)" in text
        assert "django_outbox_backlog_records 1.0" in fetch(address, "/metrics")[1]
        assert fetch(address, "/livez")[0] == 200
    # Not only the leader measures the table.
    for address, leads in zip(addresses, (1, 0), strict=True):
        of_topic = f'django_outbox_backlog_by_topic_records{{topic="{topic}"}} 1.0'
        eventually(partial(exports, address, of_topic))
        assert exports(address, f"django_outbox_leader {leads}.0")
        assert exports(address, f"django_outbox_leader_changes_total {leads}.0")
        assert exports(address, "django_outbox_ready 0.0")
    with table.connect() as writer, writer.transaction(force_rollback=True):
        writer.execute("LOCK TABLE outbox IN ROW EXCLUSIVE MODE")
        for address in addresses:
            eventually(partial(has_an_open_writer, address))
    table.execute("DELETE FROM {outbox}")
    for address in addresses:
        eventually(partial(is_ready, address))


def delivery_times(address: str) -> int:
    """How many times the histogram of an exporter has."""
    text = fetch(address, "/metrics")[1]
    found = re.search(
        r"^django_outbox_delivery_seconds_count (\d+)", text, re.MULTILINE
    )
    return int(found[1]) if found else 0


def exports(address: str, sample: str) -> bool:
    return f"{sample}\n" in fetch(address, "/metrics")[1]


def has_an_open_writer(address: str) -> bool:
    found = re.search(
        r"^django_outbox_oldest_writer_seconds (\S+)$",
        fetch(address, "/metrics")[1],
        re.MULTILINE,
    )
    # Purges are writers for milliseconds.
    return found is not None and float(found[1]) > 1.0


def not_ready(address: str) -> tuple[int, str] | None:
    answer = fetch(address, "/readyz")
    return None if answer[0] == 200 else answer


def test_a_property_for_librdkafka_reaches_the_clients(
    harvesters: Harvesters, table: OutboxTable, topics: Topics, topic: str
) -> None:
    # Larger than the client's own limit of a million bytes.
    table.insert(topic, "key", "x" * 1_200_000)
    refused = harvesters.start()
    eventually(lambda: table.count("attempts > 0"))
    refused.terminate()
    assert refused.exit_code() == 0

    roomy = topics.create(config={"max.message.bytes": "3000000"})
    table.execute(f"UPDATE {{outbox}} SET kafka_topic = '{roomy}'")
    harvesters.start(OUTBOX_KAFKA_MESSAGE_MAX_BYTES="2000000")
    table.wait_until_empty()
    (sent,) = deliveries(topics.read(roomy))
    assert sent.value == b"x" * 1_200_000


@pytest.fixture
def renamed(server: Server) -> Iterator[OutboxTable]:
    """An outbox under another name."""
    table = server.create(table="Post_Box")
    yield table
    server.drop(table)


def test_the_table_may_have_another_name(
    renamed: OutboxTable, topics: Topics, topic: str
) -> None:
    ids = renamed.insert(topic, "key", count=3)
    with Harvesters(environment_of(renamed, topics.servers)) as harvesters:
        harvesters.start()
        renamed.wait_until_empty()
    assert [d.id for d in deliveries(topics.read(topic))] == ids
