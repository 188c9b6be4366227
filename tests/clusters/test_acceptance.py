"""
Three clusters with real harvesters and one Kafka: who sends what, and when.

The tests share the servers and, as far as they leave them alive, the
processes; each has a topic of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from statistics import median

import pytest
from confluent_kafka import Message

from django_outbox.clock import boottime_ns
from django_outbox.devstack import Stack
from tests.acceptance.auditing import PARTITIONS
from tests.acceptance.writing import Writers
from tests.clusters.federation import SETTLED, Federation, federation, latencies
from tests.machine import nightly
from tests.services import Topics
from tests.waiting import eventually

MAXIMUM_DELAY = 6.0
"""Two seconds above the least that the rules accept with these time-outs."""

IN_TIME = 10.0
"""Seconds by which a busy machine may be late with a takeover."""

KEYS = 300
"""That each cluster writes to: so many records of each may be in flight."""


@pytest.fixture(scope="module", params=["at-least-once"])
def running(services: Stack, request: pytest.FixtureRequest) -> Iterator[Federation]:
    """Three clusters for all tests of this module."""
    with federation(
        services, maximum_delay=MAXIMUM_DELAY, delivery=request.param
    ) as running:
        yield running


@pytest.fixture
def clusters(running: Federation) -> Federation:
    """Three empty clusters, each with a leader and a harvester that stands by."""
    running.mend()
    running.wait_until_settled()
    running.began = boottime_ns()
    return running


@pytest.fixture
def topic(topics: Topics) -> str:
    return topics.create(partitions=PARTITIONS)


@pytest.fixture
def writers(clusters: Federation, topic: str) -> list[Writers]:
    """A writer for each cluster; all use the same keys."""
    return clusters.writers(topic, keys=KEYS)


def check(
    clusters: Federation,
    messages: Sequence[Message],
    writers: Sequence[Writers],
    *,
    records: int | None = None,
) -> None:
    found = clusters.audit(messages, writers)
    assert [audit.broken for audit in found] == [{}] * len(found)
    duplicates = sum(audit.duplicates for audit in found)
    assert duplicates <= clusters.allowed_duplicates()
    if records is not None:
        assert len(messages) - duplicates == records


def shortest(messages: Sequence[Message], writer: Writers) -> float:
    """Seconds that the first of a cluster's records has waited."""
    return min(latencies(messages, writer.ledger))


def test_what_is_written_everywhere_at_once_is_delivered_once(
    clusters: Federation, topics: Topics, topic: str, writers: list[Writers]
) -> None:
    def write(number: int) -> None:
        own = f"cluster_id = {number}"
        for _ in range(10):
            # A cluster that is behind by more than the delay is taken over.
            eventually(
                lambda: clusters.tables[number].count(own) < 2000,
                timeout=MAXIMUM_DELAY,
                what=f"cluster {number} to keep up",
            )
            writers[number].burst(1000)

    clusters.sites.at_once(write)
    clusters.wait_until_settled()

    messages = topics.read(topic, at_least=30_000)
    check(clusters, messages, writers, records=30_000)
    for number in clusters.numbers:
        assert not clusters.said(number, "takeover_started", after=clusters.began)
    assert clusters.sites.replicas.conflicts() == 0


@nightly
def test_replication_that_pauses_for_less_than_the_delay_repeats_nothing(
    clusters: Federation, topics: Topics, topic: str, writers: list[Writers]
) -> None:
    replicas = clusters.sites.replicas
    for writer in writers:
        writer.burst(200)
    replicas.wait_until_caught_up()
    began = time.monotonic()
    replicas.pause(replicas.pairs)
    for writer in writers:
        writer.burst(200)
    # Each has its own; what the others purged is still there, and grows old.
    messages = topics.read(topic, at_least=1200)
    replicas.resume()
    clusters.wait_until_settled()
    assert time.monotonic() - began < MAXIMUM_DELAY, "the machine is too busy"

    messages = topics.read(topic)
    check(clusters, messages, writers, records=1200)


def test_the_next_in_rank_takes_over_and_the_last_stays_silent(
    clusters: Federation, topics: Topics, topic: str, writers: list[Writers]
) -> None:
    clusters.kill(0)
    killed = boottime_ns()
    for writer in writers:
        writer.burst(1000)

    started = clusters.wait_for(
        1, "takeover_started", after=killed, timeout=MAXIMUM_DELAY + IN_TIME
    )
    clusters.wait_until_settled()

    assert started["origin"] == 0
    messages = topics.read(topic, at_least=3000)
    check(clusters, messages, writers, records=3000)
    assert shortest(messages, writers[0]) >= MAXIMUM_DELAY
    assert not clusters.said(2, "takeover_started", after=killed)


@nightly
def test_when_two_are_dead_the_third_takes_over_after_two_delays(
    clusters: Federation, topics: Topics, topic: str, writers: list[Writers]
) -> None:
    clusters.kill(0)
    clusters.kill(1)
    killed = boottime_ns()
    for writer in writers:
        writer.burst(1000)

    clusters.wait_until_settled()

    messages = topics.read(topic, at_least=3000)
    check(clusters, messages, writers, records=3000)
    assert shortest(messages, writers[0]) >= 2 * MAXIMUM_DELAY
    assert MAXIMUM_DELAY <= shortest(messages, writers[1]) < 2 * MAXIMUM_DELAY
    origins = clusters.said(2, "takeover_started", after=killed)
    assert [event["origin"] for event in origins] == [1, 0]


def test_a_dead_cluster_returns_with_what_it_had_not_replicated(
    clusters: Federation, topics: Topics, topic: str, writers: list[Writers]
) -> None:
    replicas = clusters.sites.replicas
    clusters.kill(1)
    writers[1].burst(500)
    replicas.wait_until_caught_up()
    replicas.pause(replicas.of(1))
    writers[1].burst(500)
    replicas.servers[1].kill()

    # The others have half of it, and take it over.
    writers[2].burst(500)
    clusters.wait_until_settled()
    messages = topics.read(topic, at_least=1000)
    assert len(messages) == 1000

    replicas.servers[1].start()
    replicas.resume()
    replicas.wait_until_caught_up()
    # Nothing keeps it from being taken over now, but it is back in time.
    clusters.mend()
    clusters.wait_until_settled()

    messages = topics.read(topic, at_least=1500)
    check(clusters, messages, writers, records=1500)


@nightly
def test_own_records_do_not_wait_for_a_takeover(
    clusters: Federation, topics: Topics, topic: str, writers: list[Writers]
) -> None:
    dead, own = clusters.writers(topic, keys=4000, prefix="other")[0], writers[1]
    writers[0] = dead
    clusters.wait_until_calm()
    with own:
        own.wait_for(200)
        before = len(own.ledger.committed)
        clusters.kill(0)
        # As long as the machine takes for them, they are not overdue, and no update
        # travels: they become so in the table of the second cluster alone.
        dead.burst(20_000, create_time="infinity")
        clusters.sites.replicas.wait_until_caught_up()
        aged = boottime_ns()
        clusters.tables[1].execute(
            "UPDATE {outbox} SET create_time = 'yesterday' WHERE cluster_id = 0"
        )
        clusters.wait_for(1, "takeover_started", after=aged, timeout=IN_TIME)
        begin = len(own.ledger.committed)
        eventually(
            lambda: not clusters.tables[1].count("cluster_id = 0"),
            timeout=SETTLED,
            what="the end of the takeover",
        )
        end = len(own.ledger.committed)
    clusters.wait_until_settled()

    messages = topics.read(topic, at_least=20_000)
    check(clusters, messages, writers)
    waited = latencies(messages, own.ledger)
    usual, during = waited[:before], waited[begin:end]
    assert len(during) >= 20
    assert median(during) < 5 * median(usual) + 0.2
