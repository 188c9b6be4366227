"""Clusters whose clocks are apart: what docs/howto/several-clusters.md says of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from django_outbox.clock import boottime_ns
from django_outbox.devstack import Stack
from tests.acceptance.auditing import PARTITIONS
from tests.acceptance.harvesters import PATIENT
from tests.clusters.federation import Federation, federation, latencies
from tests.machine import nightly, require_libfaketime
from tests.services import Topics

APART = 300.0
"""Seconds by which the last cluster's clock is ahead."""

REST = 16.0
"""What is left of the delay where it is shortened by that."""


@pytest.fixture(scope="module")
def clusters(services: Stack) -> Iterator[Federation]:
    require_libfaketime()
    with federation(
        services,
        maximum_delay=APART + REST,
        delivery="at-least-once",
        size=1,
        timing=PATIENT,
        skews={2: APART},
    ) as running:
        yield running


@nightly
def test_a_delay_above_the_difference_keeps_every_promise(
    clusters: Federation, topics: Topics
) -> None:
    """... and is shortened by it for the cluster that is ahead, but not more."""
    clusters.mend()
    began = boottime_ns()
    topic = topics.create(partitions=PARTITIONS)
    writers = clusters.writers(topic)
    for writer in writers:
        writer.burst(300)
    clusters.wait_until_settled()
    clusters.kill(1)
    killed = boottime_ns()
    writers[1].burst(100)
    clusters.wait_until_settled()

    messages = topics.read(topic, at_least=1000)
    assert len(messages) == 1000
    found = clusters.audit(messages, writers)
    assert [(audit.broken, audit.duplicates) for audit in found] == [({}, 0)] * 3
    waited = latencies(messages, writers[1].ledger)
    assert len(waited) == 400
    assert min(waited[300:]) >= REST
    (started,) = clusters.said(2, "takeover_started", after=killed)
    assert started["origin"] == 1
    assert not clusters.said(0, "takeover_started", after=began)


@nightly
def test_a_delay_below_the_difference_repeats_and_still_loses_nothing(
    clusters: Federation, topics: Topics
) -> None:
    """What repeats is for `once()`; the first of each are in order."""
    topic = topics.create(partitions=PARTITIONS)
    writers = clusters.writers(topic)
    replicas = clusters.sites.replicas
    for number in clusters.numbers:
        clusters.kill(number)
        writers[number].burst(300)
    replicas.wait_until_caught_up()
    # The last cluster takes the others' rows for old ones, and sends them at
    # once; nobody hears in time that somebody else has sent them, too.
    replicas.pause(replicas.pairs)
    clusters.mend(only=[2], OUTBOX_MAXIMUM_DELAY=str(REST))
    clusters.mend(only=[0, 1])
    topics.read(topic, at_least=1500)
    replicas.resume()
    clusters.wait_until_settled()

    found = clusters.audit(topics.read(topic), writers)
    assert [(audit.lost, audit.phantoms, audit.spoilt) for audit in found] == (
        [([], [], [])] * 3
    )
    assert [audit.out_of_order for audit in found] == [[]] * 3
    assert [audit.duplicates for audit in found] == [300, 300, 0]
    # It knows the wrong delay.
    clusters.kill(2)
