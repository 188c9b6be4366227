"""What `@retried` declares, and what it refuses."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from django_outbox import ConfigurationError, ConsumedMessage, consumer
from django_outbox.consuming import handlers
from django_outbox.consuming.handlers import Group, Subscription, find_group, group_of
from django_outbox.contrib.retry_topics import LONGEST_TOPIC, retried, retry_topic

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
FIRST, SECOND = "orders.billing.retry-1", "orders.billing.retry-2"


@pytest.fixture(autouse=True)
def _no_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "_subscriptions", [])


def handle(message: ConsumedMessage) -> None:
    """A handler."""


def declared(**options: Any) -> Group:
    retried("orders", group="billing", **{"delays": [MINUTE, HOUR], **options})(handle)
    return find_group("billing")


def test_one_group_reads_all_topics() -> None:
    group = declared()
    assert group.topics == ("orders", FIRST, SECOND)
    assert (retry_topic("orders", "billing", 1), SECOND) == (FIRST, group.topics[2])
    assert group.delays == {FIRST: 60.0, SECOND: 3600.0}
    assert {s.handle for s in group.subscriptions} == {handle}
    assert group_of(handle, SECOND).of(SECOND).delay == HOUR


def test_each_topic_leads_to_the_next_and_the_last_to_the_dead_letters() -> None:
    group = declared()
    chain = [group.dead_letter_topic(topic, ".x") for topic in group.topics]
    assert chain == [FIRST, SECOND, "orders.dlt"]
    for topic in group.topics:
        assert group.last_dead_letter_topic(topic, ".x") == "orders.dlt"
    assert [group.is_retry(topic, ".x") for topic in ("orders", *chain)] == [
        *(False, True, True, False)
    ]
    assert declared_elsewhere().dead_letter_topic("returns.audit.retry-1", "") == "bad"


def declared_elsewhere() -> Group:
    retried("returns", group="audit", delays=[MINUTE], dead_letters="bad")(handle)
    return find_group("audit")


def test_a_handler_of_the_default_dead_letter_topic_retries() -> None:
    consumer("orders", group="billing")(handle)
    consumer("orders.x", group="billing", delay=HOUR, dead_letters="bad")(handle)
    group = find_group("billing")
    assert group.is_retry("orders.x", ".x")
    assert not group.is_retry("orders.x", ".dlt")
    assert group.last_dead_letter_topic("orders", ".x") == "bad"


def test_a_message_is_tried_once_in_each_topic_unless_more_is_wanted() -> None:
    assert {s.attempts for s in declared().subscriptions} == {1}
    retried("returns", group="audit", delays=[MINUTE], attempts=3)(handle)
    assert {s.attempts for s in find_group("audit").subscriptions} == {3}


def test_the_options_of_a_consumer_hold_for_all_topics() -> None:
    key = lambda message: message.key_text()  # noqa: E731
    group = declared(batch=20, key=key)
    assert group.batch == 20
    assert {s.key for s in group.subscriptions} == {key}


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"delays": []}, "delays=.. must be one or more timedeltas above zero"),
        ({"delays": [MINUTE, timedelta()]}, "above zero"),
        ({"delays": [-MINUTE]}, "above zero"),
        ({"delays": [60]}, r"delays=\['60'\] must be one or more timedeltas"),
        ({"delays": MINUTE}, r"'orders': delays=.* must be a list of timedeltas"),
        ({"delays": 60}, "delays=60 must be a list of timedeltas"),
        ({"topic": None}, "@retried: None is not a Kafka topic name"),
        ({"attempts": 0}, "attempts=0 must be a whole number, at least 1"),
        ({"attempts": "3"}, "attempts='3' must be a whole number"),
        ({"group": None}, "group: The consumer must be a str, not None"),
        ({"group": "the billing"}, "'orders.the billing.retry-1' is not a Kafka topic"),
        ({"topic": "o" * (LONGEST_TOPIC + 1)}, "at most 200 characters"),
        ({"topic": "o" * 200, "group": "g" * 200}, "is not a Kafka topic name"),
        ({"dead_letters": "orders.billing.retry-2"}, "its own dead letter topic"),
    ],
)
def test_what_cannot_be_is_named(options: dict[str, Any], error: str) -> None:
    values = {
        "topic": "orders",
        "group": "billing",
        "delays": [MINUTE, HOUR],
        **options,
    }
    with pytest.raises(ConfigurationError, match=error):
        retried(values.pop("topic"), **values)(handle)


def test_two_handlers_cannot_share_a_retry_topic() -> None:
    declared()
    with pytest.raises(ConfigurationError, match="handles orders in the group"):
        declared()


def test_a_negative_delay_of_a_consumer_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="is negative"):
        consumer("orders", group="billing", delay=-MINUTE)(handle)


def test_dead_letters_that_a_group_handles_at_once_are_no_retries() -> None:
    """A group may watch its dead letters: they are counted, and come in all sizes."""
    consumer("orders", group="billing", dead_letters="bad")(handle)
    consumer("bad", group="billing")(lambda _: None)
    group = find_group("billing")
    assert not group.is_retry("bad", ".dlt")
    assert group.last_dead_letter_topic("orders", ".dlt") == "bad"


def test_topics_in_a_circle_end_somewhere() -> None:
    circle = [
        Subscription(
            topics=(name,),
            group="billing",
            handle=handle,
            name=name,
            dead_letters=behind,
            delay=MINUTE,
        )
        for name, behind in (("a", "b"), ("b", "a"))
    ]
    group = Group("billing", tuple(circle))
    assert group.last_dead_letter_topic("a", ".dlt") in {"a", "b"}
