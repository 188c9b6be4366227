"""Which topics are durable, and what a harvester says of one that is not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from django_outbox.kafka.topic_facts import (
    BROKER,
    ClusterFacts,
    PartitionFacts,
    TopicFacts,
)
from django_outbox.operations.durability import (
    availability_findings,
    durability_findings,
    planned,
    refusal,
)
from django_outbox.settings.options import OutboxSettings

DURABLE = {
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
}
CLUSTER = ClusterFacts(servers="kafka:9092", brokers=3, settings=DURABLE)
OPTIONS = OutboxSettings(LEADER_TOPIC="leaders")


def topic(
    name: str = "orders",
    *,
    replicas: int = 3,
    in_sync: int | None = None,
    settings: Mapping[str, str] | None = DURABLE,
) -> TopicFacts:
    there = replicas if in_sync is None else in_sync
    partition = PartitionFacts(replicas=replicas, in_sync=there)
    return TopicFacts(name=name, partitions=[partition], settings=settings)


def missing(name: str) -> TopicFacts:
    return TopicFacts(name=name, exists=False)


def names(one: TopicFacts) -> list[str]:
    return [finding.kind.name for finding in durability_findings(one, CLUSTER)]


def test_three_replicas_of_which_two_are_in_sync_are_durable() -> None:
    assert names(topic()) == []
    assert list(availability_findings(topic(), CLUSTER)) == []


@pytest.mark.parametrize("replicas", [1, 2])
def test_fewer_than_three_replicas_are_too_few(replicas: int) -> None:
    assert names(topic(replicas=replicas)) == ["replication-factor"]


def test_the_partition_with_the_fewest_replicas_counts() -> None:
    few = PartitionFacts(replicas=2, in_sync=2)
    mixed = replace(topic(), partitions=[*topic().partitions, few])
    assert names(mixed) == ["replication-factor"]


@pytest.mark.parametrize("settings", [{"min.insync.replicas": "1"}, {}])
def test_one_replica_in_sync_is_not_enough(settings: Mapping[str, str]) -> None:
    one = {**settings, "unclean.leader.election.enable": "false"}
    assert names(topic(settings=one)) == ["min-insync-replicas"]


def test_an_unclean_election_loses_messages() -> None:
    unclean = {**DURABLE, "unclean.leader.election.enable": "true"}
    (finding,) = durability_findings(topic(settings=unclean), CLUSTER)
    assert finding.kind.name == "unclean-leader-election"
    assert finding.cure == (
        "kafka-configs.sh --bootstrap-server kafka:9092 --alter --entity-type topics"
        " --entity-name orders --add-config unclean.leader.election.enable=false"
    )


def test_unknown_settings_are_not_a_finding() -> None:
    assert names(topic(settings=None)) == []


def test_the_cure_needs_as_many_brokers_as_replicas() -> None:
    (few,) = durability_findings(topic(replicas=1), replace(CLUSTER, brokers=1))
    assert few.cure.startswith("run 3 brokers (now 1), then kafka-reassign-partitions")
    (enough,) = durability_findings(topic(replicas=1), CLUSTER)
    assert enough.cure.startswith("kafka-reassign-partitions.sh")


@pytest.mark.parametrize(("replicas", "needed"), [(3, 3), (2, 2), (1, 2)])
def test_a_topic_without_a_spare_replica_stops(replicas: int, needed: int) -> None:
    settings = {**DURABLE, "min.insync.replicas": str(needed)}
    (finding,) = availability_findings(
        topic(replicas=replicas, settings=settings), CLUSTER
    )
    assert finding.kind.name == "no-spare-replica"


def test_replicas_that_lag_are_reported() -> None:
    (finding,) = availability_findings(topic(in_sync=2), CLUSTER)
    assert finding.kind.name == "replicas-out-of-sync"
    assert finding.seen.startswith("1 of 1 partition ")


def test_a_missing_topic_of_its_own_gets_the_replicas_of_the_settings() -> None:
    defaults = replace(CLUSTER, settings={"default.replication.factor": "1"})
    plan = planned(missing("leaders"), defaults, OPTIONS)
    assert plan is not None
    assert names(plan) == ["replication-factor", "min-insync-replicas"]
    chosen = replace(OPTIONS, TOPIC_REPLICATION_FACTOR=3, TOPIC_MIN_INSYNC_REPLICAS=2)
    plan = planned(missing("leaders"), defaults, chosen)
    assert plan is not None
    assert names(plan) == []
    assert (
        planned(missing("x"), defaults, replace(OPTIONS, CREATE_LEADER_TOPIC=False))
        is None
    )


def test_a_missing_topic_of_records_gets_the_defaults_of_the_broker() -> None:
    assert planned(missing("orders"), CLUSTER, None) is None
    creating = {
        **DURABLE,
        "auto.create.topics.enable": "true",
        "default.replication.factor": "2",
    }
    plan = planned(missing("orders"), replace(CLUSTER, settings=creating), None)
    assert plan is not None
    (finding,) = durability_findings(plan, CLUSTER)
    assert finding.seen == "2 replicas, 3 needed (once it is created)"
    assert "--create --topic orders --replication-factor 3" in finding.cure


def refused(*topics: TopicFacts, cluster: ClusterFacts = CLUSTER) -> str:
    facts = replace(cluster, topics={one.name: one for one in topics})
    return refusal(facts, OPTIONS, {"leaders"})


def test_durable_topics_are_not_refused() -> None:
    assert refused(topic("leaders"), topic("orders")) == ""


def test_the_refusal_names_the_topic_and_the_cure_in_one_line() -> None:
    text = refused(topic("leaders"), topic("orders", replicas=1))
    assert text == (
        "REQUIRE_DURABLE_TOPICS: the topic orders is not durable: 1 replica, 3 needed."
        " Cure: kafka-reassign-partitions.sh --bootstrap-server kafka:9092 --execute"
        " --reassignment-json-file FILE, with 3 brokers for each partition of orders in"
        " FILE"
    )


def test_a_topic_that_would_not_be_durable_is_refused_before_its_creation() -> None:
    text = refused(missing("leaders"), cluster=replace(CLUSTER, settings={}))
    assert "(once it is created). Cure: set TOPIC_REPLICATION_FACTOR = 3" in text


def test_a_topic_that_nothing_creates_is_not_refused() -> None:
    assert refused(topic("leaders"), missing("orders")) == ""


def test_what_cannot_be_read_is_refused() -> None:
    hidden = replace(CLUSTER, unseen={"settings of topic orders": "denied"})
    text = refused(topic("leaders"), topic(settings=None), cluster=hidden)
    assert text.startswith(
        "REQUIRE_DURABLE_TOPICS: cannot read the settings of topic orders: denied."
    )


def test_the_defaults_of_the_broker_matter_only_to_missing_topics() -> None:
    hidden = replace(CLUSTER, settings=None, unseen={BROKER: "denied"})
    assert refused(topic("leaders"), cluster=hidden) == ""
    assert "settings of the brokers: denied" in refused(
        missing("leaders"), cluster=hidden
    )
