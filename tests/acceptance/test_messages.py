"""What arrives in Kafka is what was written, under the contract's headers."""

from __future__ import annotations

from ..services import Topics
from .auditing import OURS, deliveries
from .harvesters import Harvesters
from .murmur2 import partition_of
from .tables import OutboxTable

UNICODE = "zażółć gęślą 🐘 ß"


def test_values_of_all_kinds_arrive_as_they_are(
    harvesters: Harvesters, table: OutboxTable, topics: Topics, topic: str
) -> None:
    binary = bytes(range(256))
    table.insert(topic, "text", UNICODE)
    table.insert(topic, "empty", "")
    table.insert(topic, "tombstone", None)
    table.insert(topic, "binary", None, raw=binary)
    table.insert(topic, "no bytes", None, raw=b"")
    table.insert(topic, UNICODE, "key")
    harvesters.start()
    table.wait_until_empty()

    sent = {d.key: d.value for d in deliveries(topics.read(topic))}
    assert sent == {
        "text": UNICODE.encode(),
        "empty": b"",
        "tombstone": None,
        "binary": binary,
        "no bytes": b"",
        UNICODE: b"key",
    }


def test_headers_come_in_the_users_order_and_then_ours(
    harvesters: Harvesters, table: OutboxTable, topics: Topics, topic: str
) -> None:
    headers = (("b", "1"), ("a", "2"), ("b", "3"), (UNICODE, UNICODE), ("none", ""))
    table.insert(topic, "key", headers=headers)
    ((id_, message_id, created_at),) = table.execute(
        "SELECT id::text, message_id::text,"
        " (extract(epoch FROM create_time) * 1000000)::bigint::text FROM {outbox}"
    )
    harvesters.start(OUTBOX_SOURCE="shop", OUTBOX_LEADER_HEADER="1")
    table.wait_until_empty()

    (sent,) = deliveries(topics.read(topic))
    leader = harvesters.all[0].wait_for("leader_acquired")
    assert sent.headers == [
        *headers,
        ("outbox-message-id", message_id),
        ("outbox-id", id_),
        ("outbox-source", "shop"),
        ("outbox-created-at", created_at),
        ("outbox-leader-id", leader["leader_id"]),
    ]


def test_the_source_is_by_default_the_leader_group(
    harvesters: Harvesters, table: OutboxTable, topics: Topics, topic: str
) -> None:
    table.insert(topic, "key")
    harvesters.start()
    table.wait_until_empty()
    (sent,) = deliveries(topics.read(topic))
    assert [name for name, _ in sent.headers] == OURS
    group = harvesters.environment["OUTBOX_LEADER_GROUP"]
    assert sent.header("outbox-source") == group


def test_keys_go_where_javas_clients_send_them(
    harvesters: Harvesters, table: OutboxTable, topics: Topics
) -> None:
    topic = topics.create(partitions=7)
    keys = [*(f"customer-{n}" for n in range(50)), UNICODE, "x", "yz", "abc"]
    for key in keys:
        table.insert(topic, key)
    chosen = table.insert(topic, "chosen", partition=5)[0]
    harvesters.start()
    table.wait_until_empty()

    sent = deliveries(topics.read(topic))
    places = {d.key: d.partition for d in sent if d.id != chosen}
    assert places == {key: partition_of(key.encode(), 7) for key in keys}
    assert [d.partition for d in sent if d.id == chosen] == [5]
