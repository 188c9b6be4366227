"""Which settings are wrong, and in which words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import pytest

from django_outbox.settings.kafka_rules import check_queues
from django_outbox.settings.options import OutboxSettings
from django_outbox.settings.problem import Problem, Rule
from django_outbox.settings.reserved_properties import RESERVED_PROPERTIES
from django_outbox.settings.rules import problems


def the_problem(**values: Any) -> Problem:
    (problem,) = problems(values)
    return problem


def test_the_defaults_are_right() -> None:
    assert list(problems({})) == []


def test_the_defaults_spelt_out_are_right() -> None:
    defaults = OutboxSettings()
    spelt = {field.name: getattr(defaults, field.name) for field in fields(defaults)}
    assert list(problems(spelt)) == []


@pytest.mark.parametrize(
    ("name", "near"),
    [("TABEL", "TABLE"), ("leader_topic", "LEADER_TOPIC"), ("MAX_INFLIGHT", "MAX_IN_")],
)
def test_an_unknown_name_is_answered_with_the_nearest(name: str, near: str) -> None:
    problem = the_problem(**{name: 1})
    assert problem.rule is Rule.UNKNOWN
    assert f"Did you mean '{near}" in problem.message


def test_a_name_like_no_other_gets_no_suggestion() -> None:
    assert "mean" not in the_problem(Q=1).message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TABLE", None),
        ("TABLE", 'x"; drop table y; --'),
        ("TABLE", "1st"),
        ("TABLE", "x" * 49),
        ("TABLE", "outbox\n"),
        ("SHARDS", True),
        ("SHARDS", "1"),
        ("SHARDS", 33),
        ("LEADER_HEADER", 1),
        ("SESSION_TIMEOUT", "6"),
        ("SESSION_TIMEOUT", float("nan")),
        ("SESSION_TIMEOUT", float("inf")),
        ("METER_INTERVAL", float("inf")),
        ("READY_AGE", float("inf")),
        ("READY_AGE", 1e10),
        ("CONSUMER_IDLE_TIMEOUT", 2_147_484.0),
        ("SESSION_TIMEOUT", 10_000.0),
        ("DATABASE_DEADLINE", 2_147_484.0),
        ("SERIES_RETENTION", 1e18),
        ("PROCESSED_RETENTION", 1e15),
        ("MAX_POLL_INTERVAL", -1.0),
        ("REVOKE_TIMEOUT", -1.0),
        ("MAX_IN_FLIGHT", 0),
        ("DELIVERY", "exactly-twice"),
        ("POISON_POLICY", "drop"),
        ("TOPIC_POISON_POLICY", {"orders": "drop"}),
        ("TOPIC_POISON_POLICY", {"no topic!": "park"}),
        ("CLUSTER_ID", 1),
        ("CLUSTER_ID", -1),
        ("CLUSTERS_COUNT", 0),
        ("CLUSTERS_COUNT", 33),
        ("TRANSACTION_BATCH", 10_001),
        ("MAX_VALUE_BYTES", 16 * 1024 * 1024 + 1),
        ("ARCHIVE_RETENTION", 86_399.0),
        ("MAXIMUM_DELAY", -1.0),
        ("LEADER_TOPIC", "with space"),
        ("LEADER_GROUP", "x" * 250),
        ("METRICS_ADDRESS", "9187"),
        ("CONSUMER_METRICS_ADDRESS", "9188"),
        ("METRICS_ADDRESS", "host:99999"),
        ("METRICS_ADDRESS", "host:³"),
        ("ALLOWED_TOPICS", "orders"),
        ("ALLOWED_TOPICS", (1,)),
        ("KAFKA", []),
        ("OFFSETS", "zookeeper"),
        ("CONSUMER_ATTEMPTS", -1),
        ("CONSUMER_IDLE_TIMEOUT", 0.0),
        ("DEAD_LETTER_SUFFIX", ""),
        ("DEAD_LETTER_SUFFIX", ".dead letters"),
        ("PROCESSED_RETENTION", -1.0),
        ("TOPIC_REPLICATION_FACTOR", 0),
        ("TOPIC_REPLICATION_FACTOR", 3.0),
        ("TOPIC_REPLICATION_FACTOR", True),
        ("TOPIC_MIN_INSYNC_REPLICAS", 0),
        ("REQUIRE_DURABLE_TOPICS", 1),
    ],
)
def test_a_wrong_value_is_named(name: str, value: Any) -> None:
    problem = next(problems({name: value}))
    assert (problem.rule, problem.setting) == (Rule.VALUE, name)


@pytest.mark.parametrize(
    ("values", "culprit"),
    [
        ({"HEARTBEAT_TIMEOUT": 3.0}, "HEARTBEAT_TIMEOUT"),
        ({"HEARTBEAT_INTERVAL": 1.3}, "HEARTBEAT_INTERVAL"),
        ({"DELIVERY_TIMEOUT": 6.1}, "DELIVERY_TIMEOUT"),
        ({"MAX_POLL_INTERVAL": 14.9}, "MAX_POLL_INTERVAL"),
        ({"DRAIN_TIMEOUT": 14.0, "REVOKE_TIMEOUT": 1.0}, "DRAIN_TIMEOUT"),
        ({"MIN_POLL_INTERVAL": 0.2}, "MIN_POLL_INTERVAL"),
        ({"RETRY_BACKOFF": 6.0}, "RETRY_BACKOFF"),
    ],
)
def test_times_that_do_not_go_together_are_named(
    values: Mapping[str, float], culprit: str
) -> None:
    problem = the_problem(**values)
    assert (problem.rule, problem.setting) == (Rule.TIMING, culprit)
    assert str(values[culprit]) in problem.message


def test_a_cluster_of_several_is_right() -> None:
    for cluster in range(3):
        assert list(problems({"CLUSTER_ID": cluster, "CLUSTERS_COUNT": 3})) == []
    assert the_problem(CLUSTER_ID=3, CLUSTERS_COUNT=3).setting == "CLUSTER_ID"


def test_replicas_are_the_brokers_choice_or_enough_for_those_in_sync() -> None:
    assert list(problems({"TOPIC_MIN_INSYNC_REPLICAS": 2})) == []
    three = {"TOPIC_REPLICATION_FACTOR": 3}
    assert list(problems({**three, "TOPIC_MIN_INSYNC_REPLICAS": 3})) == []
    problem = the_problem(**three, TOPIC_MIN_INSYNC_REPLICAS=4)
    assert (problem.rule, problem.setting) == (Rule.VALUE, "TOPIC_MIN_INSYNC_REPLICAS")
    assert "TOPIC_REPLICATION_FACTOR (3)" in problem.message


def test_clusters_do_not_take_over_during_an_election() -> None:
    alone: dict[str, Any] = {"MAXIMUM_DELAY": 0.0}
    assert list(problems(alone)) == []
    several = {"CLUSTERS_COUNT": 2, "SESSION_TIMEOUT": 6.0, "DRAIN_TIMEOUT": 5.0}
    problem = the_problem(**several, MAXIMUM_DELAY=11.0)
    assert (problem.rule, problem.setting) == (Rule.TIMING, "MAXIMUM_DELAY")
    assert "(6.0 + 5.0)" in problem.message
    assert list(problems({**several, "MAXIMUM_DELAY": 11.1})) == []


def test_other_times_follow_from_the_session_timeout() -> None:
    """A short session alone is a valid configuration, if heartbeats keep up."""
    short: dict[str, Any] = {
        "SESSION_TIMEOUT": 3.0,
        "HEARTBEAT_TIMEOUT": 1.0,
        "HEARTBEAT_INTERVAL": 0.25,
    }
    assert list(problems(short)) == []
    settings = OutboxSettings(**short)
    assert settings.DELIVERY_TIMEOUT == 3.0
    assert settings.MAX_POLL_INTERVAL == 7.5
    assert settings.DRAIN_TIMEOUT == 2.5
    assert settings.REVOKE_TIMEOUT == 2.0
    slow: dict[str, Any] = {"HEARTBEAT_TIMEOUT": 2.9, "HEARTBEAT_INTERVAL": 1.4}
    assert list(problems(slow)) == []
    assert OutboxSettings(**slow).MAX_POLL_INTERVAL > 16.0


@pytest.mark.parametrize("setting", ["KAFKA", "PRODUCER_KAFKA"])
@pytest.mark.parametrize("key", RESERVED_PROPERTIES)
def test_an_owned_kafka_property_is_refused(setting: str, key: str) -> None:
    problem = the_problem(**{setting: {key: "x"}})
    assert (problem.rule, problem.setting) == (Rule.KAFKA_KEY, setting)
    assert repr(key) in problem.message


def test_a_kafka_property_of_the_projects_is_left_alone() -> None:
    kafka = {"bootstrap.servers": "b:9092", "sasl.password": "hidden"}
    assert list(problems({"KAFKA": kafka})) == []


@pytest.mark.parametrize("setting", ["KAFKA", "PRODUCER_KAFKA", "CONSUMER_KAFKA"])
def test_a_list_is_one_text(setting: str) -> None:
    name = "bootstrap.servers" if setting == "KAFKA" else "debug"
    problem = the_problem(**{setting: {name: ["a", "b"]}})
    assert (problem.rule, problem.setting) == (Rule.VALUE, setting)
    assert "must be one text with commas" in problem.message


@pytest.mark.parametrize("setting", ["PRODUCER_KAFKA", "CONSUMER_KAFKA"])
@pytest.mark.parametrize("name", ["bootstrap.servers", "metadata.broker.list"])
def test_all_clients_reach_the_same_brokers(setting: str, name: str) -> None:
    """Else the ledger or the positions would be those of another Kafka."""
    kafka = {"bootstrap.servers": "kafka:9092"}
    assert list(problems({"KAFKA": kafka, setting: {name: "kafka:9092"}})) == []
    problem = the_problem(KAFKA=kafka, **{setting: {name: "elsewhere:9092"}})
    assert (problem.rule, problem.setting) == (Rule.KAFKA_KEY, setting)
    assert f"{name!r} must be that of KAFKA" in problem.message


def test_the_value_of_an_owned_property_is_not_shown() -> None:
    problem = the_problem(KAFKA={"group.id": "hidden"})
    assert "hidden" not in problem.message


def test_consumers_may_set_what_matters_to_the_leader_only() -> None:
    own = {"max.poll.interval.ms": 600_000, "auto.offset.reset": "latest"}
    assert list(problems({"CONSUMER_KAFKA": own})) == []
    problem = the_problem(CONSUMER_KAFKA={"enable.auto.commit": True})
    assert problem.rule is Rule.KAFKA_KEY
    everywhere = the_problem(KAFKA={"auto.offset.reset": "latest"})
    assert everywhere.rule is Rule.KAFKA_KEY


def test_the_interval_of_heartbeats_is_a_fifth_of_their_time_out() -> None:
    assert OutboxSettings().HEARTBEAT_INTERVAL == 0.5
    assert OutboxSettings(HEARTBEAT_TIMEOUT=1.0).HEARTBEAT_INTERVAL == 0.2
    chosen = OutboxSettings(HEARTBEAT_TIMEOUT=1.0, HEARTBEAT_INTERVAL=0.4)
    assert chosen.HEARTBEAT_INTERVAL == 0.4


EXACTLY_ONCE = {"DELIVERY": "exactly-once", "TRANSACTION_BATCH": 500}


def test_a_producers_queue_holds_what_stash_takes() -> None:
    small = {"queue.buffering.max.kbytes": 2_000}
    options = OutboxSettings(MAX_VALUE_BYTES=5_000_000, PRODUCER_KAFKA=small)
    (problem,) = check_queues(options)
    assert "must hold a message" in problem.message


@pytest.mark.parametrize(
    ("values", "setting"),
    [
        (
            {**EXACTLY_ONCE, "KAFKA": {"queue.buffering.max.messages": 500}},
            "KAFKA",
        ),
        (
            {**EXACTLY_ONCE, "PRODUCER_KAFKA": {"queue.buffering.max.messages": "1"}},
            "PRODUCER_KAFKA",
        ),
        ({"PRODUCER_KAFKA": {"queue.buffering.max.kbytes": 900}}, "PRODUCER_KAFKA"),
        (
            {
                "KAFKA": {"message.max.bytes": 20_000_000},
                "PRODUCER_KAFKA": {"queue.buffering.max.kbytes": 10_000},
            },
            "PRODUCER_KAFKA",
        ),
    ],
)
def test_a_producers_queue_holds_a_transaction_and_the_largest_message(
    values: dict[str, Any], setting: str
) -> None:
    (problem,) = problems(values)

    assert (problem.rule, problem.setting) == (Rule.VALUE, setting)


@pytest.mark.parametrize(
    "values",
    [
        {**EXACTLY_ONCE, "KAFKA": {"queue.buffering.max.messages": 501}},
        # No limit.
        {**EXACTLY_ONCE, "KAFKA": {"queue.buffering.max.messages": 0}},
        # Only a transaction has to be held at once.
        {"KAFKA": {"queue.buffering.max.messages": 500}},
        {"KAFKA": {"queue.buffering.max.kbytes": 977}},
        # librdkafka's own affair.
        {"KAFKA": {"queue.buffering.max.kbytes": "many"}},
    ],
)
def test_a_queue_that_is_large_enough_is_fine(values: dict[str, Any]) -> None:
    assert list(problems(values)) == []
