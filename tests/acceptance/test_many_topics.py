"""One outbox for fifty topics of fifty partitions each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import psutil
import pytest

from ..machine import nightly
from ..services import Topics, own_kafka
from ..waiting import eventually
from .auditing import deliveries
from .harvesters import MODES, Harvesters
from .tables import OutboxTable

pytestmark = nightly

TOPICS = PARTITIONS = 50
KEYS = 100
"""Of each topic."""
RECORDS = 20
"""Of each key."""

PATIENCE = {"OUTBOX_SESSION_TIMEOUT": "30", "OUTBOX_DELIVERY_TIMEOUT": "20"}
"""A request holds the records of one partition, so a record waits for thousands."""

INSERT = """
INSERT INTO {outbox} (create_time, kafka_topic, kafka_key, kafka_value)
SELECT now(), topic, 'key-' || key, number
FROM generate_series(1, %(records)s) AS number,
    generate_series(1, %(keys)s) AS key,
    unnest(%(topics)s::text[]) AS topic
ORDER BY number
"""


@pytest.fixture(scope="module")
def topics() -> Iterator[Topics]:
    """A broker of their own: so many partitions slow a broker down."""
    with own_kafka() as address:
        yield Topics(address)


@pytest.fixture
def names(topics: Topics) -> list[str]:
    return [topics.create(partitions=PARTITIONS) for _ in range(TOPICS)]


@pytest.mark.parametrize("relay", ["pipelined", "ledger"])
def test_each_record_comes_in_the_order_of_its_key(
    harvesters: Harvesters,
    table: OutboxTable,
    topics: Topics,
    names: list[str],
    relay: str,
) -> None:
    harvesters.environment = {**harvesters.environment, **MODES[relay], **PATIENCE}
    (leader,) = harvesters.start_ready(1)
    table.execute(INSERT, {"records": RECORDS, "keys": KEYS, "topics": names})
    eventually(lambda: not table.count(), timeout=300, what="an empty table")

    for name in names:
        sent = deliveries(topics.read(name))
        of_keys: defaultdict[str, list[int]] = defaultdict(list)
        for delivery in sent:
            number = int(delivery.value or b"")
            # A record may wait too long while those of other partitions are
            # acknowledged: the pipelined relay then begins again, with repeats.
            if relay == "ledger" or number not in of_keys[delivery.key]:
                of_keys[delivery.key].append(number)
        assert of_keys == {
            f"key-{key}": [*range(1, RECORDS + 1)] for key in range(1, KEYS + 1)
        }
        assert len({d.partition for d in sent}) > PARTITIONS / 2
    held = psutil.Process(leader.pid).memory_full_info().uss >> 20
    assert held < 256, f"{held} MiB"
