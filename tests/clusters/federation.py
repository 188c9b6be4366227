"""
Several clusters as an operator has them: servers that replicate to each other,
a pair of harvesters for each, writers in each, and one Kafka for all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from confluent_kafka import Message

from django_outbox.devstack import Stack
from django_outbox.devstack.waiting import wait_while_moving
from tests.acceptance.auditing import Audit, audit, deliveries
from tests.acceptance.harvesters import FAST, Harvesters
from tests.acceptance.tables import OutboxTable
from tests.acceptance.writing import Ledger, Writers
from tests.processes import Event, Process
from tests.services import text_of
from tests.waiting import eventually

from .sites import Sites, sites

PAIR = 2
"""Harvesters of a cluster."""

MAX_IN_FLIGHT = 2000
"""Records that a leader sends again, at most, when it takes over."""

SETTLED = 60.0
"""Seconds for the end of a takeover, on a busy machine."""


class Federation:
    """Clusters that relay; all that was killed comes back with `mend()`."""

    def __init__(self, running: Sites, *, source: str, size: int = PAIR) -> None:
        self.sites = running
        self.tables = [OutboxTable(url, "outbox") for url in running.replicas.urls]
        self._source = source
        self._size = size
        self.began = 0
        """When what is looked at began, in nanoseconds of the boottime clock."""
        self._harvesters = [
            Harvesters(running.environment(number))
            for number in range(len(self.tables))
        ]
        for table in self.tables:
            table.execute("CREATE TABLE business (message_id uuid PRIMARY KEY)")

    @property
    def numbers(self) -> range:
        """Of the clusters that have joined."""
        return range(self.sites.count)

    def close(self) -> None:
        for harvesters in self._harvesters:
            harvesters.__exit__(None, None, None)

    def mend(self, *, only: Sequence[int] | None = None, **variables: str) -> None:
        """Start the harvesters that are missing; return when each cluster is led."""
        chosen = self.numbers if only is None else only
        for number in chosen:
            for _ in range(self._size - len(self.running(number))):
                name = f"{number}-{uuid4().hex[:4]}"
                self._harvesters[number].start(name=name, **variables)
        for number in chosen:
            for harvester in self.running(number):
                harvester.wait_for("ready")
            eventually(
                lambda number=number: any(h.leads for h in self.running(number)),  # type: ignore[misc]
                what=f"a leader of cluster {number}",
            )

    def roll(self, number: int) -> None:
        """Put a harvester with the settings of now in the place of each."""
        old = self.running(number)
        self._harvesters[number].environment = self.sites.environment(number)
        for harvester in old:
            name = f"{number}-{uuid4().hex[:4]}"
            self._harvesters[number].start(name=name).wait_for("ready")
            harvester.terminate()
            assert harvester.exit_code() == 0
        self.mend(only=[number])

    def running(self, number: int) -> list[Process]:
        return [h for h in self._harvesters[number].all if h.is_running]

    def kill(self, number: int) -> None:
        """End all harvesters of a cluster as a power cut does."""
        for harvester in self.running(number):
            harvester.kill()

    def said(self, number: int, *kinds: str, after: int = 0) -> list[Event]:
        """What a cluster's harvesters have said after a moment."""
        return [
            event
            for harvester in self._harvesters[number].all
            for event in harvester.all(*kinds, after=after)
        ]

    def allowed_duplicates(self) -> int:
        """
        How many records at-least-once delivery may have repeated since `began`.

        A busy machine may cost a leader its leadership; what was in flight then is
        sent again.
        """
        kinds = ("leader_fenced", "leader_refreshed")
        changes = sum(
            len(self.said(number, *kinds, after=self.began)) for number in self.numbers
        )
        return MAX_IN_FLIGHT * changes

    def wait_for(self, number: int, kind: str, *, after: int, timeout: float) -> Event:
        """The first event of a kind that a cluster's harvesters tell of."""
        return eventually(
            lambda: self.said(number, kind, after=after),
            timeout=timeout,
            what=f"{kind} in cluster {number}",
        )[0]

    def wait_until_settled(self) -> None:
        """Return when no row is left in any cluster whose server runs."""
        wait_while_moving(
            lambda: not any(self.left()),
            what="empty tables in all clusters",
            progress=self.left,
        )

    def wait_until_calm(self) -> None:
        """Return when no takeover is under way, which later records would join."""

        def is_calm() -> bool:
            return all(
                len(harvester.all("takeover_started"))
                == len(harvester.all("takeover_ended"))
                for number in self.numbers
                for harvester in self.running(number)
            )

        eventually(is_calm, timeout=SETTLED, what="the end of all takeovers")

    def left(self) -> list[int]:
        """Rows in each table, 0 where the server is away."""
        servers = self.sites.replicas.servers
        return [
            self.tables[number].count() if servers[number].is_running() else 0
            for number in self.numbers
        ]

    def writers(self, topic: str, **options: Any) -> list[Writers]:
        """Writers for one topic, one for each cluster; nobody writes yet."""
        return [Writers(table, topic, writers=1, **options) for table in self.tables]

    def audit(
        self, messages: Sequence[Message], writers: Sequence[Writers]
    ) -> list[Audit]:
        """
        Compare what a topic holds with what each cluster has committed.

        Each message belongs to the cluster that its header names. Order is
        promised for each key within a cluster; between clusters it is not.
        """
        of = defaultdict(list)
        for delivery in deliveries(messages):
            of[delivery.header("outbox-source")].append(delivery)
        found = [
            audit(writer.ledger, of.pop(f"{self._source}/{origin}", []))
            for origin, writer in enumerate(writers)
        ]
        assert not of, f"messages of {set(of)}"
        return found


@contextmanager
def federation(
    services: Stack,
    *,
    maximum_delay: float,
    delivery: str,
    size: int = PAIR,
    timing: Mapping[str, str] = FAST,
    **options: Any,
) -> Iterator[Federation]:
    """Start three clusters with this delay."""
    name = f"clusters-{uuid4()}"
    variables = {
        "KAFKA_BOOTSTRAP_SERVERS": services.bootstrap_servers,
        "OUTBOX_DELIVERY": delivery,
        "OUTBOX_DRAIN_TIMEOUT": "1",
        "OUTBOX_LEADER_GROUP": name,
        "OUTBOX_LEADER_TOPIC": name,
        "OUTBOX_MAX_IN_FLIGHT": str(MAX_IN_FLIGHT),
        "OUTBOX_MAXIMUM_DELAY": str(maximum_delay),
        **timing,
    }
    with sites(3, variables=variables, **options) as running:
        clusters = Federation(running, source=name, size=size)
        try:
            clusters.mend()
            yield clusters
        finally:
            clusters.close()


def latencies(messages: Sequence[Message], ledger: Ledger) -> list[float]:
    """
    Seconds from the writing of each of these records to the first sending.

    In the order of their ids, by the clocks of the database and the harvester.
    """
    first: dict[int, float] = {}
    for message in messages:
        headers = dict(message.headers() or [])
        identity = text_of(headers["outbox-message-id"])
        if promise := ledger.committed.get(identity):
            created = int(headers["outbox-created-at"] or 0) / 1e6
            sent = message.timestamp()[1] / 1e3
            first.setdefault(promise.id, sent - created)
    return [waited for _, waited in sorted(first.items())]
