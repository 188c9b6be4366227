"""librdkafka's properties, as the settings ask for them."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, libversion
from confluent_kafka.admin import AdminClient

from django_outbox.exceptions import ConfigurationError
from django_outbox.kafka.config import (
    admin_config,
    consumer_config,
    heartbeat_config,
    milliseconds,
    producer_config,
    redacted,
    transactional_config,
    transform_config,
)
from django_outbox.kafka.validation import (
    _check_callbacks,
    check_properties,
    check_transforms,
)
from django_outbox.settings.options import OutboxSettings
from django_outbox.settings.reserved_properties import RESERVED_PROPERTIES
from django_outbox.settings.rules import problems

named = partial(OutboxSettings, LEADER_TOPIC="leaders")

KAFKA = {"bootstrap.servers": "kafka:9092"}


def test_seconds_become_milliseconds() -> None:
    config = consumer_config(
        named(
            SESSION_TIMEOUT=3.0,
            HEARTBEAT_TIMEOUT=1.0,
            HEARTBEAT_INTERVAL=0.5,
            MAX_POLL_INTERVAL=6.0,
        )
    )

    assert config["session.timeout.ms"] == 3000
    assert config["max.poll.interval.ms"] == 6000
    assert config["heartbeat.interval.ms"] == 200


def test_a_duration_is_never_rounded_down_to_nothing() -> None:
    assert milliseconds(0.0001) == 1
    assert milliseconds(2.5) == 2500


def test_the_group_is_classic_and_sticky_and_commits_only_on_purpose() -> None:
    config = consumer_config(named())

    assert config["group.protocol"] == "classic"
    assert config["partition.assignment.strategy"] == "cooperative-sticky"
    assert config["enable.auto.commit"] is False
    assert config["auto.offset.reset"] == "latest"
    assert config["isolation.level"] == "read_uncommitted"


def test_records_are_sent_idempotently_with_javas_partitioner() -> None:
    config = producer_config(named(DELIVERY_TIMEOUT=4.0))

    assert config["acks"] == "all"
    assert config["enable.idempotence"] is True
    assert config["partitioner"] == "murmur2_random"
    assert config["message.timeout.ms"] == 4000


def test_a_stale_heartbeat_is_dropped_unsent() -> None:
    config = heartbeat_config(named(HEARTBEAT_TIMEOUT=1.0))

    assert config["message.timeout.ms"] == 1000
    assert config["linger.ms"] == 0


@pytest.mark.skipif(libversion()[1] < 0x020B00FF, reason="has no such property")
def test_heartbeats_return_to_the_brokers_that_they_know() -> None:
    """They would wait for a second or two until librdkafka has started over."""
    name = "metadata.recovery.strategy"
    assert heartbeat_config(named())[name] == "none"
    assert heartbeat_config(named(KAFKA={name: "rebootstrap"}))[name] == "rebootstrap"
    assert name not in consumer_config(named())


def test_the_projects_properties_reach_every_client() -> None:
    options = named(KAFKA={"bootstrap.servers": "kafka:1", "client.id": "x"})
    makers = (admin_config, producer_config, heartbeat_config, consumer_config)

    for make in makers:
        config = make(options)
        assert config["bootstrap.servers"] == "kafka:1"
        assert config["client.id"] == "x"


def test_properties_of_the_producer_reach_no_other_client() -> None:
    options = named(PRODUCER_KAFKA={"compression.type": "zstd"})

    assert producer_config(options)["compression.type"] == "zstd"
    for make in (admin_config, heartbeat_config, consumer_config):
        assert "compression.type" not in make(options)


@pytest.mark.parametrize("setting", ["KAFKA", "PRODUCER_KAFKA"])
@pytest.mark.parametrize("name", ["linger.ms", "retry.backoff.ms", "compression.type"])
def test_what_the_project_chooses_holds_for_both_promises(
    setting: str, name: str
) -> None:
    chosen: Any = "lz4" if name == "compression.type" else 77
    values: dict[str, Any] = {setting: {name: chosen}}
    options = OutboxSettings(SOURCE="shop", LEADER_TOPIC="t", **values)

    assert producer_config(options)[name] == chosen
    assert transactional_config(options, shard=0, origin=0)[name] == chosen


def test_properties_of_the_producer_go_before_those_of_all_clients() -> None:
    options = OutboxSettings(
        LEADER_TOPIC="shop",
        KAFKA={"linger.ms": 1},
        PRODUCER_KAFKA={
            "linger.ms": 2,
            "acks": 1,
            "delivery.report.only.error": True,
        },
    )

    assert producer_config(options)["linger.ms"] == 2
    assert not producer_config(options)["delivery.report.only.error"]
    assert transactional_config(options, shard=0, origin=0)["linger.ms"] == 2
    assert transactional_config(options, shard=0, origin=0)["acks"] == "all"


@pytest.mark.parametrize("key", sorted(RESERVED_PROPERTIES))
def test_what_the_promises_rest_on_cannot_be_overridden(key: str) -> None:
    """rules.py refuses these keys already; here they are without effect."""
    options = named(KAFKA={key: "bad"}, PRODUCER_KAFKA={key: "bad"})
    plain = named()

    for make in (producer_config, consumer_config):
        if key in make(plain):
            assert make(options)[key] == make(plain)[key]


def test_a_broken_connection_is_told_whatever_a_project_chooses() -> None:
    """After one during a commit the client must not commit again."""
    options = named(KAFKA={"log.connection.close": False})
    for config in (transactional_config(options, 0, 0), transform_config(options, "t")):
        assert config["log.connection.close"] is True


def test_librdkafka_knows_every_property() -> None:
    options = named(KAFKA={"bootstrap.servers": "127.0.0.1:1"})
    quiet = {"log_level": 0}

    Consumer(consumer_config(options) | quiet).close()
    Producer(producer_config(options) | quiet)
    Producer(heartbeat_config(options) | quiet)
    AdminClient(admin_config(options) | quiet)


@pytest.mark.parametrize(
    ("chosen", "line"),
    [
        ({"KAFKA": {}}, r'KAFKA: "bootstrap.servers" is missing'),
        ({"KAFKA": {"nonsense": "x"}}, r"KAFKA: .*nonsense"),
        ({"KAFKA": {"bootstrap_servers": "x"}}, r'.*did you mean "bootstrap.servers"'),
        (
            {"KAFKA": {**KAFKA, "security.protocol": "ssl", "ssl.ca.location": "/x"}},
            r"KAFKA: .*ssl.ca.location",
        ),
        ({"PRODUCER_KAFKA": {"nonsense": "x"}}, r"PRODUCER_KAFKA: .*nonsense"),
        ({"CONSUMER_KAFKA": {"nonsense": "x"}}, r"CONSUMER_KAFKA: .*nonsense"),
        ({"SESSION_TIMEOUT": 6000.0}, r"SESSION_TIMEOUT: .*session.timeout.ms"),
    ],
)
def test_what_librdkafka_refuses_is_one_line_that_names_the_setting(
    chosen: dict[str, Any], line: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"^{line}") as caught:
        check_properties(OutboxSettings(**{"KAFKA": KAFKA, **chosen}))
    assert "\n" not in str(caught.value)
    assert "\\n" not in str(caught.value)


def token(config: str) -> tuple[str, float]:
    raise AssertionError("Settings are checked without an identity provider.")


def test_a_callback_for_tokens_is_accepted_and_not_called() -> None:
    chosen = {"sasl.mechanisms": "OAUTHBEARER", "security.protocol": "SASL_SSL"}
    options = OutboxSettings(KAFKA={**KAFKA, **chosen, "oauth_cb": token})
    assert list(problems({"KAFKA": options.KAFKA})) == []
    check_properties(options)


@pytest.mark.parametrize("name", ["KAFKA", "PRODUCER_KAFKA", "CONSUMER_KAFKA"])
def test_a_driver_that_would_not_call_it_is_refused(name: str) -> None:
    values: dict[str, Any] = {name: {"oauth_cb": token}}
    options = OutboxSettings(**values)
    with pytest.raises(ConfigurationError, match=f"{name}: .*2.13 or later; 2.12.1 is"):
        _check_callbacks(options, "2.12.1")
    _check_callbacks(options, "2.13.0rc1")


@pytest.mark.parametrize("name", ["KAFKA", "CONSUMER_KAFKA"])
def test_a_group_that_transforms_reads_committed_records(name: str) -> None:
    check_transforms(OutboxSettings())
    own: dict[str, Any] = {name: {"isolation.level": "read_uncommitted"}}
    with pytest.raises(ConfigurationError, match=f"^{name}: isolation.level is 'read_"):
        check_transforms(OutboxSettings(**own))


def test_long_timeouts_are_none_that_librdkafka_refuses() -> None:
    check_properties(
        OutboxSettings(
            DELIVERY="exactly-once",
            KAFKA=KAFKA,
            SESSION_TIMEOUT=250.0,
            MAX_POLL_INTERVAL=300.0,
            DELIVERY_TIMEOUT=200.0,
        )
    )


@pytest.mark.parametrize(
    "key",
    [
        "sasl.password",
        "sasl.username",
        "sasl.jaas.config",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.password",
        "ssl.certificate.pem",
        "SASL.Password",
        "https.proxy",
    ],
)
def test_a_log_shows_no_credentials(key: str) -> None:
    shown = redacted({key: "hunter2"})

    assert shown == {key: "[hidden]"}


def test_a_log_shows_what_is_harmless() -> None:
    config = {
        "bootstrap.servers": "kafka:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "ssl.ca.location": "/ca.crt",
        "error_cb": print,
    }

    assert redacted(config) == {
        "bootstrap.servers": "kafka:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "ssl.ca.location": "/ca.crt",
    }
