"""A cluster comes and goes as docs/howto/several-clusters.md says; all others work."""

from __future__ import annotations

from django_outbox.devstack import Stack
from tests.acceptance.auditing import PARTITIONS
from tests.acceptance.harvesters import PATIENT
from tests.clusters.federation import SETTLED, Federation, federation
from tests.services import Topics
from tests.waiting import eventually

from ..machine import nightly

ABOVE = 1_000_000_000


@nightly
def test_a_cluster_is_added_and_removed_while_the_others_write(
    services: Stack, topics: Topics
) -> None:
    with federation(
        services,
        maximum_delay=30.0,
        delivery="at-least-once",
        size=1,
        # What a leader has not drained in time its successor sends again.
        timing={**PATIENT, "OUTBOX_DRAIN_TIMEOUT": "10"},
        joined=2,
    ) as clusters:
        replicas = clusters.sites.replicas
        topic = topics.create(partitions=PARTITIONS)
        first, second, third = writers = clusters.writers(topic)
        with first, second:
            first.wait_for(50)
            add(clusters)
            with third:
                third.wait_for(100)
            eventually(
                lambda: (
                    not any(table.count("cluster_id = 2") for table in clusters.tables)
                ),
                timeout=SETTLED,
                what="the last rows of the third cluster",
            )
            (harvester,) = clusters.running(2)
            harvester.terminate()
            assert harvester.exit_code() == 0
            clusters.sites.count = 2
            replicas.disconnect(2)
            first.wait_for(50)
            second.wait_for(50)
        clusters.wait_until_settled()
        conflicts = replicas.conflicts()

    committed = [writer.ledger.committed.values() for writer in writers]
    messages = topics.read(topic, at_least=sum(map(len, committed)))
    found = clusters.audit(messages, writers)
    assert [(audit.broken, audit.duplicates) for audit in found] == [({}, 0)] * 3
    assert conflicts == 0
    # Far apart from each other from the change on.
    for number, promises in enumerate(committed):
        late = [promise.id for promise in promises if promise.id > ABOVE]
        assert late
        assert {id % 3 for id in late} == {number}


def add(clusters: Federation) -> None:
    """The steps of the page, in their order."""
    sites, above = clusters.sites, ["--above", str(ABOVE)]
    sites.count = 3
    sites.manage(2, "migrate", "-v0")
    sites.manage(2, "outbox", "cluster", "init", *above)
    sites.replicas.connect()
    for number in (0, 1):
        sites.manage(number, "outbox", "cluster", "init", *above)
    # Each waits for a place in its group: all at the same time, to save that.
    sites.at_once(clusters.roll)
