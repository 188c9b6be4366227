"""What several clusters have in common in Kafka, and what each has of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from django_outbox.exceptions import InvalidMessage
from django_outbox.kafka.config import consumer_config, transactional_config
from django_outbox.message.headers import Envelope
from django_outbox.message.limits import Topics
from django_outbox.settings.options import OutboxSettings
from tests.unit.samples import record

ALONE = OutboxSettings(LEADER_TOPIC="shop", LEADER_GROUP="shop")


def cluster(cluster_id: int, **values: Any) -> OutboxSettings:
    """One of three."""
    return replace(ALONE, CLUSTERS_COUNT=3, CLUSTER_ID=cluster_id, **values)


def test_the_first_cluster_keeps_the_names_that_it_had_alone() -> None:
    for name in ("leader_topic", "leader_group", "ledger_topic"):
        assert getattr(cluster(0), name) == getattr(ALONE, name)
    assert ALONE.leader_group == ALONE.LEADER_GROUP


def test_every_cluster_has_an_election_of_its_own() -> None:
    groups = [consumer_config(cluster(n))["group.id"] for n in range(3)]
    assert groups == ["shop", "shop-1", "shop-2"]
    assert [cluster(n).leader_topic for n in range(3)] == ["shop", "shop-1", "shop-2"]
    producer = transactional_config(cluster(2), 0, 2)
    assert producer["transactional.id"] == "shop-2.0"


def test_settings_that_are_replaced_keep_their_names() -> None:
    assert replace(cluster(2), METER_INTERVAL=1.0).leader_group == "shop-2"


def test_the_ledger_of_an_origin_has_one_name_everywhere() -> None:
    assert cluster(1).ledger_topic == "shop-1.ledger"
    assert {cluster(n).ledger_topic_of(1) for n in range(3)} == {"shop-1.ledger"}


@pytest.mark.parametrize("topic", ["shop", "shop-2", "shop.ledger", "shop-1.ledger"])
def test_no_message_may_name_a_topic_of_any_cluster(topic: str) -> None:
    with pytest.raises(InvalidMessage, match="is reserved"):
        Topics(cluster(0)).check(topic)


def test_alone_a_topic_may_be_called_like_that_of_a_second_cluster() -> None:
    Topics(ALONE).check("shop-1")


@pytest.mark.parametrize("this_cluster", [0, 1, 2])
def test_a_record_says_where_it_was_written_whoever_relays_it(
    this_cluster: int,
) -> None:
    envelope = Envelope(cluster(this_cluster))
    said = [
        dict(envelope.headers(record(1)._replace(cluster_id=origin), "leader"))
        for origin in (0, 1, 2, 7)
    ]
    expected = ["shop/0", "shop/1", "shop/2", "shop/7"]
    assert [headers["outbox-source"] for headers in said] == expected


def test_one_cluster_says_nothing_of_clusters() -> None:
    headers = Envelope(ALONE).headers(record(1)._replace(cluster_id=7), "leader")
    assert dict(headers)["outbox-source"] == "shop"
    assert ALONE.sources == ("shop",)


def test_consumers_know_the_sources_of_all_clusters() -> None:
    options = cluster(1, SOURCE="orders")
    assert options.cluster_sources == ("orders/0", "orders/1", "orders/2")
    # And what it was called while it was one: that may still be in Kafka.
    assert options.sources == ("orders", *options.cluster_sources)
