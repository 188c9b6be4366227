"""goharvest's keys, each as what it means here."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pytest

from django_outbox.exceptions import ConfigurationError
from django_outbox.postgres.outbox_identity import require_names
from django_outbox.settings.options import OutboxSettings
from django_outbox.standalone.configuration import ReaperConfig, configure
from django_outbox.standalone.translation import SERVERS

NAMED = {
    "leaderTopic": "orders",
    "leaderGroupID": "orders",
    "dataSource": "host=h sslmode=disable",
}
"""The keys without which a file earns a notice."""


def of_limits(limits: Mapping[str, Any], **more: Any) -> ReaperConfig:
    return configure({**NAMED, "limits": limits, **more})


def of_base(base: Mapping[str, Any], **more: Any) -> ReaperConfig:
    return configure({**NAMED, "baseKafkaConfig": base, **more})


def warnings(config: ReaperConfig) -> dict[str, str]:
    return {n.key: n.message for n in config.notices if n.level == logging.WARNING}


def infos(config: ReaperConfig) -> dict[str, str]:
    return {n.key: n.message for n in config.notices if n.level == logging.INFO}


def refusal(document: Mapping[str, Any]) -> str:
    with pytest.raises(ConfigurationError) as caught:
        configure(document)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_an_empty_file_has_goharvests_data_source_and_table() -> None:
    """The settings are those of a Django project without any."""
    config = configure({})
    assert config.data_source == (
        "host=localhost port=5432 user=postgres dbname=postgres sslmode=disable"
    )
    assert (config.table, config.name, config.level) == ("outbox", None, logging.INFO)
    assert config.options == OutboxSettings(KAFKA=SERVERS)


def test_names_that_are_not_given_are_left_to_the_database() -> None:
    """goharvest's table has none, and the error names the file's keys."""
    config = configure({})
    assert not config.options.is_named
    assert not {"leaderGroupID", "leaderTopic"} & set(warnings(config))
    with pytest.raises(ConfigurationError) as caught:
        require_names(config.options, None, table="outbox")
    assert config.in_words_of_the_file(str(caught.value)).startswith(
        "leaderTopic and leaderGroupID are not set, and 'outbox' has no identity"
    )


def test_the_leader_topic_follows_the_group_as_in_goneli() -> None:
    """A file that names only the group keeps the topic that goharvest used."""
    config = configure({**NAMED, "leaderTopic": ""})
    assert config.options.LEADER_TOPIC == "neli.orders"
    assert warnings(config) == {"leaderTopic": "is not set, using 'neli.orders'"}


def test_the_group_follows_the_leader_topic() -> None:
    """Two files with two topics do not meet in one group."""
    config = configure({"leaderTopic": "orders", "dataSource": "sslmode=disable"})
    assert config.options.LEADER_GROUP == "orders"
    assert list(warnings(config)) == ["leaderGroupID"]


def test_a_topic_of_kafkas_own_cannot_hold_heartbeats() -> None:
    """goharvest's secure example names one; brokers refuse to write there."""
    assert refusal({"leaderTopic": "__consumer_offsets"}) == (
        "leaderTopic: '__consumer_offsets' is an internal topic of Kafka; name a topic "
        "to which heartbeats can be written."
    )


def test_the_keys_work_below_harvest_and_without_it() -> None:
    """Messages name the key where it stands."""
    flat = configure({**NAMED, "name": "a", "logging": {"level": "Warn"}})
    nested = configure(
        {"harvest": {**NAMED, "name": "a"}, "logging": {"level": "WARN"}}
    )
    assert flat == nested
    assert (flat.name, flat.level) == ("a", logging.WARNING)
    bad = {"limits": {"minPollInterval": "1x"}}
    assert refusal(bad).startswith("limits.minPollInterval: '1x' is not a duration")
    assert refusal({"harvest": bad}).startswith("harvest.limits.minPollInterval: ")


def test_keys_beside_harvest_are_refused() -> None:
    """Which of the two would count is nobody's guess."""
    document: dict[str, Any] = {"harvest": {}, "limits": {}}
    assert refusal(document) == "limits: move it below 'harvest'."


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"harvests": {}}, "harvests: unknown key. Did you mean 'harvest'?"),
        (
            {"harvest": {"limits": {"minPolInterval": "1s"}}},
            "harvest.limits.minPolInterval: unknown key. "
            "Did you mean 'minPollInterval'?",
        ),
        ({"logging": {"levle": "Info"}}, "logging.levle: unknown key. "
         "Did you mean 'level'?"),
        (
            {"logging": {"level": "Verbose"}},
            "logging.level: 'Verbose' must be Trace, Debug, Info, Warn, Error or Off.",
        ),
        (
            {"outboxTable": "a.b.c"},
            "outboxTable: 'a.b.c' is not a table name (with or without a schema).",
        ),
        (
            {"leaderTopic": "t", "leaderGroupID": "two words"},
            "leaderGroupID: 'two words' must be 1 to 249 letters, digits, '.', '_' or "
            "'-'.",
        ),
        (
            {"limits": {"maxInFlightRecords": "0"}},
            "limits.maxInFlightRecords: 0 must be at least 1.",
        ),
        (
            {"baseKafkaConfig": {"session.timeout.ms": "6s"}},
            "baseKafkaConfig.session.timeout.ms: '6s' is not a number.",
        ),
        (
            {"baseKafkaConfig": {"max.poll.interval.ms": "5000"}},
            "baseKafkaConfig.max.poll.interval.ms: 5.0 must not be below "
            "2 * baseKafkaConfig.session.timeout.ms + limits.heartbeatTimeout + "
            "limits.minPollInterval (2 * 6.0 + 2.5 + 0.5), or a rebalance could "
            "elect another process while this one leads.",
        ),
    ],
)  # fmt: skip
def test_a_wrong_value_is_told_in_the_files_words(
    document: Mapping[str, Any], message: str
) -> None:
    """One line, with the key as it stands in the file."""
    assert refusal(document) == message


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("Trace", logging.DEBUG),
        ("debug", logging.DEBUG),
        ("Info", logging.INFO),
        ("WARN", logging.WARNING),
        ("Error", logging.ERROR),
        ("Off", logging.CRITICAL + 1),
    ],
)
def test_goharvests_log_levels_are_known(text: str, level: int) -> None:
    """Case does not matter."""
    assert configure({**NAMED, "logging": {"level": text}}).level == level


def test_counts_and_intervals_become_settings() -> None:
    """Each limit that means something here is one setting, or two."""
    options = of_limits(
        {
            "maxInFlightRecords": "10",
            "markQueryRecords": "20",
            "minMetricsInterval": "1s",
            "markBackoff": "1ms",
        }
    ).options
    assert (options.MAX_IN_FLIGHT, options.MARK_BATCH) == (10, 20)
    assert options.METER_INTERVAL == 1.0
    assert (options.POLL_INTERVAL, options.MIN_POLL_INTERVAL) == (0.001, 0.001)


def test_a_long_pause_at_an_empty_table_does_not_slow_a_busy_one() -> None:
    """goharvest pauses only after a mark that found nothing."""
    options = of_limits({"markBackoff": "1s"}).options
    assert (options.POLL_INTERVAL, options.MIN_POLL_INTERVAL) == (1.0, 0.002)


@pytest.mark.parametrize(
    "name",
    [
        "drainInterval",
        "ioErrorBackoff",
        "maxPollInterval",
        "pollDuration",
        "queueTimeout",
        "sendBuffer",
        "sendConcurrency",
    ],
)
def test_a_limit_that_means_nothing_here_is_accepted_with_the_reason(name: str) -> None:
    """The settings are those of a file without it."""
    config = of_limits({name: "1"})
    assert config.options == of_limits({}).options
    assert warnings(config)[f"limits.{name}"].startswith("has no effect: ")


def test_the_session_is_three_heartbeat_timeouts() -> None:
    """As in goharvest; twice is the rule that keeps two leaders apart."""
    options = of_limits({"heartbeatTimeout": "5s"}).options
    assert (options.HEARTBEAT_TIMEOUT, options.SESSION_TIMEOUT) == (5.0, 15.0)


def test_the_session_is_not_below_what_a_stock_broker_accepts() -> None:
    """A short heartbeat timeout still fences early."""
    options = of_limits({"heartbeatTimeout": "1s"}).options
    assert (options.HEARTBEAT_TIMEOUT, options.SESSION_TIMEOUT) == (1.0, 6.0)
    assert options.HEARTBEAT_INTERVAL == 0.2


def test_a_session_timeout_of_kafkas_is_taken_over() -> None:
    """The heartbeat timeout follows when the file does not set it."""
    config = of_base({"session.timeout.ms": "3000"})
    assert config.options.SESSION_TIMEOUT == 3.0
    assert config.options.HEARTBEAT_TIMEOUT == 1.0
    assert config.options.HEARTBEAT_INTERVAL == 0.2
    assert config.options.KAFKA == SERVERS
    assert infos(config) == {
        "baseKafkaConfig.session.timeout.ms": "is used as SESSION_TIMEOUT"
    }
    longer = of_base({"session.timeout.ms": "30000"}).options
    assert (longer.SESSION_TIMEOUT, longer.HEARTBEAT_TIMEOUT) == (30.0, 2.5)


def test_a_session_and_a_heartbeat_that_do_not_go_together_are_refused() -> None:
    """Safety is not adjusted in silence."""
    document = {
        "limits": {"heartbeatTimeout": "5s"},
        "baseKafkaConfig": {"session.timeout.ms": "10000"},
    }
    assert refusal(document) == (
        "limits.heartbeatTimeout: 5.0 must be below half of "
        "baseKafkaConfig.session.timeout.ms (10.0), or two processes could lead at "
        "once."
    )


def test_the_interval_of_goharvests_polls_is_that_of_heartbeats() -> None:
    """goharvest writes a heartbeat with each poll of the leader topic."""
    assert of_limits({"minPollInterval": "1s"}).options.HEARTBEAT_INTERVAL == 1.0


def test_heartbeats_come_twice_in_a_heartbeat_timeout() -> None:
    """One lost heartbeat must not fence the leader."""
    config = of_limits({"minPollInterval": "3s"})
    assert config.options.HEARTBEAT_INTERVAL == 1.25
    assert warnings(config) == {
        "limits.minPollInterval": "is reduced to half the heartbeat timeout, 1.25 s"
    }


def test_the_limit_goes_before_kafkas_heartbeat_interval() -> None:
    """Both mean the same; the group's own interval is never longer."""
    base = {"heartbeat.interval.ms": "800"}
    assert of_base(base).options.HEARTBEAT_INTERVAL == 0.8
    both = of_base(base, limits={"minPollInterval": "300ms"})
    assert both.options.HEARTBEAT_INTERVAL == 0.3
    assert both.options.KAFKA == SERVERS


def test_a_poll_interval_of_kafkas_is_taken_over() -> None:
    """It is the time after which the broker gives up a hanging leader."""
    config = of_base({"max.poll.interval.ms": "30000"})
    assert config.options.MAX_POLL_INTERVAL == 30.0
    assert config.options.KAFKA == SERVERS


@pytest.mark.parametrize("name", ["delivery.timeout.ms", "message.timeout.ms"])
@pytest.mark.parametrize(
    ("given", "seconds", "is_bounded"),
    [
        ("4000", 4.0, False),
        ("6000", 6.0, False),
        ("10000", 6.0, True),
        ("0", 6.0, True),
    ],
)
def test_a_delivery_timeout_ends_with_the_session(
    name: str, given: str, seconds: float, is_bounded: bool
) -> None:
    """A paused leader must not send after its time; 0 is for ever to librdkafka."""
    config = configure({**NAMED, "producerKafkaConfig": {name: given}})
    assert config.options.DELIVERY_TIMEOUT == seconds
    assert config.options.PRODUCER_KAFKA == {}
    key = f"producerKafkaConfig.{name}"
    assert (key in warnings(config)) == is_bounded
    assert infos(config) == {key: "is used as DELIVERY_TIMEOUT"}


def test_the_producers_delivery_timeout_goes_before_the_base() -> None:
    """As in goharvest, which merges the two in this order."""
    config = of_base(
        {"message.timeout.ms": "2000"},
        producerKafkaConfig={"delivery.timeout.ms": "4000"},
    )
    assert config.options.DELIVERY_TIMEOUT == 4.0


def test_properties_of_kafka_pass_as_they_stand() -> None:
    """Texts: librdkafka reads numbers and truth values by itself."""
    config = of_base(
        {"bootstrap.servers": "a:1,b:2", "sasl.password": "0123"},
        producerKafkaConfig={"compression.type": "lz4", "linger.ms": "5"},
    )
    assert config.options.KAFKA == {
        "bootstrap.servers": "a:1,b:2",
        "sasl.password": "0123",
    }
    assert config.options.PRODUCER_KAFKA == {
        "compression.type": "lz4",
        "linger.ms": "5",
    }
    assert warnings(config) == {}


def test_properties_that_the_promises_rest_on_are_ignored_with_the_reason() -> None:
    """In goharvest some of them were the user's."""
    config = of_base(
        {"group.id": "g", "enable.idempotence": "false", "go.logs.channel.enable": "1"},
        producerKafkaConfig={
            "acks": "1",
            "partitioner": "random",
            "session.timeout.ms": "1",
        },
    )
    assert (config.options.KAFKA, config.options.PRODUCER_KAFKA) == (SERVERS, {})
    assert warnings(config) == {
        "baseKafkaConfig.group.id": "is ignored: set leaderGroupID",
        "baseKafkaConfig.enable.idempotence": "is ignored: order and duplicates depend "
        "on it",
        "baseKafkaConfig.go.logs.channel.enable": "is ignored: for the Go client only",
        "producerKafkaConfig.acks": "is ignored: durability is part of the promise",
        "producerKafkaConfig.partitioner": "is ignored: consumers rely on murmur2",
        "producerKafkaConfig.session.timeout.ms": "is ignored: set "
        "baseKafkaConfig.session.timeout.ms",
    }


@pytest.mark.parametrize(
    "source",
    [
        "host=localhost port=5432 user=u password= dbname=d sslmode=disable",
        "postgres://u:p%40ss@localhost:5432/d?sslmode=disable",
        "postgresql:///d?host=/run/postgresql&sslmode=disable",
        "host='/tmp/a b' options='-c search_path=sales' sslmode=disable",
    ],
)
def test_a_data_source_in_either_form_is_accepted(source: str) -> None:
    """libpq connects with what lib/pq connected with."""
    assert warnings(configure({**NAMED, "dataSource": source})) == {}


def test_a_data_source_without_a_word_on_tls_earns_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """lib/pq demanded TLS then, libpq may do without."""
    monkeypatch.delenv("PGSSLMODE", raising=False)
    document = {**NAMED, "dataSource": "host=h"}
    expected = "has no sslmode: libpq may fall back to clear text"
    assert warnings(configure(document)) == {"dataSource": expected}
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    assert warnings(configure(document)) == {}


@pytest.mark.parametrize(
    "source",
    [
        "host=h password=geheim search_path=sales",
        "host=h password=a geheim",
        "postgres://u:geheim@[h/d",
    ],
)
def test_a_data_source_that_libpq_refuses_is_not_quoted(source: str) -> None:
    """Even a part of it may be a part of the password."""
    message = refusal({"harvest": {**NAMED, "dataSource": source}})
    assert message.startswith("harvest.dataSource: libpq does not accept it.")
    assert "geheim" not in message


def test_no_password_is_in_any_notice_or_repr() -> None:
    """A debugger's or an error tracker's dump of the value shows none."""
    config = of_base(
        {"sasl.password": "geheim", "ssl.key.password": "geheim", "go.x": "geheim"},
        dataSource="host=h password=geheim",
    )
    assert "geheim" not in repr(config)
    assert config.data_source == "host=h password=geheim"
