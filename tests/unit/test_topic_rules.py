"""What the doctor says of topics, brokers and settings: fired, and not fired."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from django_outbox.election.ports import Heartbeat
from django_outbox.kafka.config import producer_config
from django_outbox.kafka.consumer_output import KafkaDeadLetters
from django_outbox.kafka.topic_facts import ClusterFacts, PartitionFacts, TopicFacts
from django_outbox.message.record import Identity
from django_outbox.operations.client_rules import (
    acks_findings,
    election_findings,
    settings_findings,
)
from django_outbox.operations.finding import Finding
from django_outbox.operations.topic_rules import (
    broker_findings,
    growth_findings,
    ledger_findings,
    missing_findings,
    record_topic_findings,
)
from django_outbox.postgres.database_facts import WaitingTopic
from django_outbox.settings.message_sizes import largest_message
from django_outbox.settings.options import OutboxSettings

DAY = 86_400.0
STOCK = {
    "cleanup.policy": "delete",
    "retention.ms": "604800000",
    "retention.bytes": "-1",
    "max.message.bytes": "1048588",
}
LEDGER = {
    "cleanup.policy": "compact",
    "segment.bytes": "67108864",
    "min.cleanable.dirty.ratio": "0.1",
    "max.message.bytes": "1048588",
}
CLUSTER = ClusterFacts(servers="kafka:9092", brokers=3, settings={})


def names(findings: Iterable[Finding]) -> list[str]:
    return [finding.kind.name for finding in findings]


def of_records(**settings: str) -> list[Finding]:
    changed = {name.replace("_", "."): value for name, value in settings.items()}
    topic = TopicFacts(name="orders", settings={**STOCK, **changed})
    return list(
        record_topic_findings(
            topic,
            CLUSTER,
            longest_stop=3 * DAY,
            largest=largest_message(OutboxSettings()),
        )
    )


def test_a_stock_topic_suits_the_default_settings() -> None:
    assert of_records() == []
    assert of_records(retention_ms="-1") == []
    assert of_records(retention_ms=str(3 * 86_400_000)) == []


def test_a_short_retention_is_shorter_than_a_stop() -> None:
    (finding,) = of_records(retention_ms="86400000")
    assert finding.kind.name == "retention"
    assert finding.seen == (
        "retention.ms = 86400000 (24 h), and a consumer may stop for 3 days"
    )
    assert finding.cure.endswith("--add-config retention.ms=259200000")


def test_a_limit_of_bytes_is_a_retention_too() -> None:
    assert names(of_records(retention_bytes="1073741824")) == ["retention-bytes"]


def test_compaction_drops_messages_of_a_key() -> None:
    assert names(of_records(cleanup_policy="compact")) == ["topic-compacted"]
    both = of_records(cleanup_policy="compact,delete", retention_ms="1000")
    assert names(both) == ["retention", "topic-compacted"]


def test_a_topic_must_take_the_largest_message() -> None:
    (finding,) = of_records(max_message_bytes="900000")
    assert finding.kind.name == "max-message-bytes"
    assert finding.cure.endswith(
        f"max.message.bytes={largest_message(OutboxSettings())}"
    )


def test_a_topic_whose_settings_are_hidden_has_no_findings() -> None:
    hidden = TopicFacts(name="orders", settings=None)
    found = record_topic_findings(hidden, CLUSTER, longest_stop=DAY, largest=10**9)
    assert list(found) == []
    assert list(ledger_findings(hidden, CLUSTER)) == []


def of_ledger(**settings: str) -> list[str]:
    changed = {name.replace("_", "."): value for name, value in settings.items()}
    topic = TopicFacts(name="leaders.ledger", settings={**LEDGER, **changed})
    return names(ledger_findings(topic, CLUSTER))


def test_a_ledger_topic_as_the_harvester_creates_it() -> None:
    assert of_ledger() == []


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_ledger_must_not_expire(policy: str) -> None:
    assert of_ledger(cleanup_policy=policy) == ["ledger-cleanup"]


def test_a_ledger_is_compacted_early() -> None:
    assert of_ledger(segment_bytes="1073741824") == ["ledger-compaction"]
    assert of_ledger(min_cleanable_dirty_ratio="0.9") == ["ledger-compaction"]


def test_a_ledger_of_a_whole_transaction_fits() -> None:
    assert of_ledger(max_message_bytes="65536") == ["max-message-bytes"]


def test_a_missing_topic_is_named_with_the_number_of_records() -> None:
    topic = TopicFacts(name="orders", exists=False)
    (finding,) = missing_findings(topic, CLUSTER, WaitingTopic("orders", 1_200, 5.0))
    assert finding.kind.name == "topic-missing"
    assert finding.seen == "the topic does not exist (waiting: 1,200 records)"
    assert "--create --topic orders" in finding.cure
    (finding,) = missing_findings(topic, CLUSTER, None)
    assert finding.seen == "the topic does not exist"


def partition(first: int, at: float | None) -> PartitionFacts:
    return PartitionFacts(replicas=3, in_sync=3, first_offset=first, first_at=at)


OLD, NEW = partition(0, 10.0), partition(0, 90.0)
CUT, EMPTY = partition(5, 95.0), partition(0, None)
WAITING = WaitingTopic("orders", 3, 50.0)


def grown(*partitions: PartitionFacts, waiting: WaitingTopic = WAITING) -> list[str]:
    topic = TopicFacts(name="orders", partitions=partitions)
    return [finding.seen for finding in growth_findings(topic, waiting)]


def test_partitions_that_begin_after_the_oldest_waiting_record_are_new() -> None:
    assert grown(OLD, CUT, NEW, EMPTY) == [
        "partitions 2 to 3 have no record from before the oldest waiting one (waiting:"
        " 3 records)"
    ]
    assert grown(OLD, EMPTY) == [
        "partition 1 has no record from before the oldest waiting one (waiting:"
        " 3 records)"
    ]


@pytest.mark.parametrize(
    "partitions",
    [
        (OLD,),
        (OLD, CUT),
        # A new topic; keys that leave some partitions out.
        (NEW, EMPTY),
        (OLD, EMPTY, OLD),
        (EMPTY, OLD),
        # Nobody asked for offsets.
        (PartitionFacts(replicas=3, in_sync=3),) * 2,
    ],
)
def test_other_topics_have_not_grown(partitions: tuple[PartitionFacts, ...]) -> None:
    assert grown(*partitions) == []


def test_without_a_time_of_the_oldest_record_nothing_is_said() -> None:
    assert grown(OLD, NEW, waiting=WaitingTopic("orders", 3, None)) == []


def of_brokers(
    settings: Mapping[str, str], *, replicas: int = 3, transactions: bool = False
) -> list[str]:
    part = PartitionFacts(replicas=replicas, in_sync=replicas)
    topics = {
        name: TopicFacts(name=name, partitions=[part])
        for name in ("__consumer_offsets", "__transaction_state")
    }
    cluster = replace(CLUSTER, settings=settings, topics=topics)
    return [
        f"{finding.kind.name} {finding.subject}"
        for finding in broker_findings(
            cluster, longest_stop=3 * DAY, uses_transactions=transactions
        )
    ]


def test_a_broker_that_creates_durable_topics_may() -> None:
    creates = {"auto.create.topics.enable": "true"}
    durable = {"default.replication.factor": "3", "min.insync.replicas": "2"}
    assert of_brokers({**creates, **durable}) == []
    assert of_brokers({}) == []
    assert of_brokers(creates) == ["broker-defaults brokers"]
    less = {**creates, **durable, "min.insync.replicas": "1"}
    assert of_brokers(less) == ["broker-defaults brokers"]


def test_offsets_outlive_the_longest_stop() -> None:
    assert of_brokers({"offsets.retention.minutes": "10080"}) == []
    short = {"offsets.retention.minutes": "1440"}
    assert of_brokers(short) == ["offsets-retention brokers"]


def test_kafkas_own_topics_need_replicas_too() -> None:
    offsets = "internal-topics topic __consumer_offsets"
    assert of_brokers({}, replicas=1) == [offsets]
    assert of_brokers({}, replicas=1, transactions=True) == [
        offsets,
        "internal-topics topic __transaction_state",
    ]


def of_settings(**settings: Any) -> list[str]:
    options = OutboxSettings(**settings)
    return names(settings_findings(options, longest_stop=3 * DAY))


def test_the_default_settings_are_safe() -> None:
    assert of_settings() == []


def test_values_must_fit_into_the_producers_message() -> None:
    for limit, found in (("3000000", []), ("2000000", ["producer-message-bytes"])):
        chosen = {"message.max.bytes": limit}
        assert of_settings(MAX_VALUE_BYTES=2_000_000, KAFKA=chosen) == found


@pytest.mark.parametrize("limit", [1, 900_000, 2_000_000])
def test_the_producer_takes_what_stash_takes(limit: int) -> None:
    options = OutboxSettings(MAX_VALUE_BYTES=limit)
    assert of_settings(MAX_VALUE_BYTES=limit) == []
    taken = producer_config(options)["message.max.bytes"]
    assert taken == max(1_000_000, largest_message(options))
    # What consumers send may be larger than what is stashed here.
    dead_letters = KafkaDeadLetters(options)
    assert dead_letters._config["message.max.bytes"] == 10 * 1024 * 1024


def test_the_dedupe_window_outlives_the_longest_stop() -> None:
    assert of_settings(PROCESSED_RETENTION=DAY) == ["dedupe-window"]
    assert of_settings(PROCESSED_RETENTION=3 * DAY) == []


def test_tls_without_verification_is_an_error() -> None:
    tls = {"security.protocol": "SSL"}
    off = {**tls, "enable.ssl.certificate.verification": "false"}
    assert of_settings(KAFKA=off) == ["tls-verification"]
    assert of_settings(KAFKA=tls) == []


def test_credentials_in_clear_text_are_a_warning() -> None:
    assert of_settings(KAFKA={"security.protocol": "SASL_PLAINTEXT"}) == ["clear-text"]


def test_the_producers_of_an_outbox_wait_for_all_replicas() -> None:
    assert list(acks_findings(producer_config(OutboxSettings()))) == []


@pytest.mark.parametrize(
    "producer",
    [
        {"acks": "1", "enable.idempotence": True},
        {"acks": "all", "request.required.acks": 0, "enable.idempotence": True},
        {"acks": -1, "enable.idempotence": False},
        {"acks": "all"},
    ],
)
def test_other_acks_are_an_error(producer: Mapping[str, Any]) -> None:
    assert names(acks_findings(producer)) == ["acks"]


HERE = Identity("11111111-1111-4111-8111-111111111111", "1/2")


def heard(outbox: str, system: str) -> list[Finding]:
    beat = Heartbeat(node="n", nonce="x", sent_at=1.0, outbox=outbox, system=system)
    return list(election_findings([beat], HERE, "leaders"))


def test_heartbeats_of_this_outbox_are_expected() -> None:
    assert heard(*HERE) == []
    assert heard("", "") == []


def test_another_outbox_in_the_leader_topic_is_an_error() -> None:
    (finding,) = heard("22222222-2222-4222-8222-222222222222", "1/2")
    assert finding.kind.name == "two-outboxes"
    assert "names that no other outbox uses" in finding.cure
    (copy,) = heard(HERE.outbox, "1/3")
    assert "outbox identity --new" in copy.cure


def test_without_an_identity_nothing_is_compared() -> None:
    beat = Heartbeat(node="n", nonce="x", sent_at=1.0, outbox=HERE.outbox, system="1/3")
    assert list(election_findings([beat], None, "leaders")) == []
