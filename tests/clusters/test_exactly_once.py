"""Clusters that take over from each other, on one Kafka: each record once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import uuid4

import pytest
from django.db import connections
from django.db.transaction import atomic

from django_outbox.clusters.cluster_ids import read_numbering, statements
from django_outbox.harvester.harvester import Harvester
from django_outbox.settings.options import OutboxSettings
from tests.waiting import eventually

from ..integration.harvesting import Witness, fast_options
from ..services import Topics

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])

QUIET = 2.0

Row = tuple[int, str]


def belong(alias: str, *, cluster: int, count: int) -> None:
    """Make a database that of a cluster, as `outbox cluster init` does."""
    connection = connections[alias]
    numbering = read_numbering(connection, "outbox")
    with atomic(using=alias), connection.cursor() as cursor:
        for statement in statements("outbox", numbering, cluster=cluster, count=count):
            cursor.execute(statement)


@pytest.fixture(autouse=True)
def single() -> Iterator[None]:
    """Leave both databases as other tests expect them."""
    yield
    for alias in ("default", "other"):
        belong(alias, cluster=0, count=1)


class Clusters:
    """Databases that a test replicates by hand: rows as it says, purges never."""

    def __init__(
        self, bootstrap_servers: str, topic: str, *, count: int, batch: int = 50
    ) -> None:
        self._topic = topic
        self._options = fast_options(
            bootstrap_servers,
            DELIVERY="exactly-once",
            CLUSTERS_COUNT=count,
            MAXIMUM_DELAY=QUIET,
            TRANSACTION_BATCH=batch,
            DELIVERY_TIMEOUT=5.0,
        )
        self.witness = Witness()

    def harvester(self, cluster: int, alias: str) -> Harvester:
        belong(alias, cluster=cluster, count=self._options.CLUSTERS_COUNT)
        options: dict[str, Any] = {
            name: getattr(self._options, name)
            for name in OutboxSettings.__dataclass_fields__
        }
        return Harvester(
            name=f"cluster-{cluster}",
            database=alias,
            options=OutboxSettings(**options | {"CLUSTER_ID": cluster}),
            observers=[self.witness],
            send=lambda _event: 0,
        )

    def insert(self, rows: Sequence[Row], *aliases: str) -> None:
        """Let old rows of cluster 0 be in these databases."""
        for alias in aliases:
            with atomic(using=alias), connections[alias].cursor() as cursor:
                cursor.executemany(
                    "INSERT INTO outbox (id, message_id, cluster_id, create_time,"
                    " kafka_topic, kafka_key, kafka_value)"
                    " VALUES (%s, %s, 0, '2020-01-01 UTC', %s, %s, %s)",
                    [
                        (id, message_id, self._topic, str(id % 3), str(id))
                        for id, message_id in rows
                    ],
                )


def rows(first: int, last: int, *, step: int) -> list[Row]:
    return [(id, str(uuid4())) for id in range(first, last + 1, step)]


def left(alias: str) -> int:
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT count(*) FROM outbox")
        return int(cursor.fetchone()[0])


def times_sent(topics: Topics, topic: str) -> Counter[int]:
    return Counter(int(message.value() or b"") for message in topics.read(topic))


def fenced(caplog: pytest.LogCaptureFixture) -> int:
    """How often a dispatcher has lost its producer."""
    return sum("read from the ledger" in record.msg for record in caplog.records)


def test_an_origin_that_returns_sends_only_what_was_not_taken_over(
    bootstrap_servers: str, topics: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    topic = topics.create()
    clusters = Clusters(bootstrap_servers, topic, count=2)
    both, rest = rows(2, 400, step=2), rows(402, 440, step=2)
    clusters.insert(both, "default", "other")
    with clusters.harvester(1, "other"):
        eventually(lambda: not left("other"))
        started = clusters.witness.wait_for("takeover_started")
        assert (started.name, started.origin) == ("cluster-1", 0)
        assert times_sent(topics, topic) == Counter(id for id, _ in both)

        # The origin has all its rows yet, and some that it has sent to nobody.
        clusters.insert(rest, "default")
        with clusters.harvester(0, "default"):
            eventually(lambda: not left("default"))
            clusters.witness.wait_for("takeover_ended")
            # What the origin sends still arrives at the other, and its purge does not.
            caplog.clear()
            clusters.insert(rest, "other")
            eventually(lambda: not left("other"))
            assert not fenced(caplog)

    assert times_sent(topics, topic) == Counter(id for id, _ in both + rest)


def test_two_that_take_over_at_once_send_each_record_once(
    bootstrap_servers: str, topics: Topics
) -> None:
    topic = topics.create()
    clusters = Clusters(bootstrap_servers, topic, count=3, batch=5)
    # Every tenth id belongs to nobody.
    both = [row for row in rows(3, 4500, step=3) if row[0] % 30]

    with clusters.harvester(1, "default"), clusters.harvester(2, "other"):
        for name in ("cluster-1", "cluster-2"):
            clusters.witness.wait_for("leader_acquired", name=name)
        # Replication brings the one half here first, the other half there.
        clusters.insert(both[::2], "default")
        clusters.insert(both[1::2], "other")
        # The second one fences the first in the middle of its work.
        for name in ("cluster-1", "cluster-2"):
            clusters.witness.wait_for("takeover_started", name=name)
        clusters.insert(both[1::2], "default")
        clusters.insert(both[::2], "other")
        eventually(lambda: not left("default") and not left("other"))

    assert times_sent(topics, topic) == Counter(id for id, _ in both)
