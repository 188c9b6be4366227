"""A broker with a quota: a megabyte a second for each client id."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from django_outbox.jars import read_list, resolve
from django_outbox.jars.find_java import find_java

from ..machine import nightly
from ..services import Topics, own_kafka
from .auditing import deliveries
from .harvesters import MODES, Harvesters
from .tables import OutboxTable

QUOTA = 1_000_000
"""Bytes a second of each producer."""
RECORDS = 16_000
SIZE = 1000
"""Bytes of a value: MAX_IN_FLIGHT records are 8 MB, and DELIVERY_TIMEOUT is 5 s."""

WINDOW = {"pipelined": 8000, "ledger": 0}
"""Records that may come twice: the burst that a quota allows makes room for so many,
and the broker then takes none of them for longer than DELIVERY_TIMEOUT."""

INSERT = """
INSERT INTO {outbox} (create_time, kafka_topic, kafka_key, kafka_value)
SELECT now(), %(topic)s, 'key-' || number %% 100, repeat('x', %(size)s)
FROM generate_series(1, %(records)s) AS number ORDER BY number
RETURNING id
"""


@pytest.fixture(scope="module")
def topics() -> Iterator[Topics]:
    """A broker with a quota for everybody."""
    with own_kafka() as address:
        class_path = os.pathsep.join(map(str, resolve(read_list("kafka"))))
        subprocess.run(
            [
                *(find_java(), "-cp", class_path),
                *("kafka.admin.ConfigCommand", "--bootstrap-server", address),
                *("--alter", "--add-config", f"producer_byte_rate={QUOTA}"),
                *("--entity-type", "clients", "--entity-default"),
            ],
            check=True,
        )
        yield Topics(address)


@nightly
@pytest.mark.parametrize("relay", ["pipelined", "ledger"])
def test_each_record_is_sent_once(
    harvesters: Harvesters, table: OutboxTable, topics: Topics, relay: str
) -> None:
    topic = topics.create(partitions=4)
    leader = harvesters.start(**MODES[relay])
    leader.wait_for("leader_acquired")
    values = {"topic": topic, "size": SIZE, "records": RECORDS}
    inserted = [id for (id,) in table.execute(INSERT, values)]
    table.wait_until_empty()

    assert leader.all("leader_fenced", "leader_revoked") == []
    sent = deliveries(topics.read(topic))
    assert len(sent) - len(inserted) <= WINDOW[relay]
    for key in {delivery.key for delivery in sent}:
        ids = [delivery.id for delivery in sent if delivery.key == key]
        # The rest of a key may come once more from some record on.
        assert [*dict.fromkeys(ids)] == sorted({*ids})
    assert sorted({delivery.id for delivery in sent}) == inserted
