"""Which handlers there are, and which contradict each other."""

from __future__ import annotations

import enum
from functools import partial
from typing import Any

import pytest

from django_outbox import ConfigurationError, ConsumedMessage, consumer, once
from django_outbox.consuming import handlers
from django_outbox.consuming.handlers import find_group


@pytest.fixture(autouse=True)
def _no_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "_subscriptions", [])


def handle(message: ConsumedMessage) -> None:
    """A handler."""


def test_the_only_group_is_found_without_its_name() -> None:
    assert consumer("orders", "returns", group="billing")(handle) is handle
    group = find_group(None)
    assert group.name == "billing"
    assert group.topics == ("orders", "returns")
    assert group.of("returns").handle is handle
    assert not group.transforms


def test_the_smallest_batch_of_a_group_counts() -> None:
    consumer("orders", group="billing", batch=50)(handle)
    consumer("returns", group="billing", batch=20)(lambda _: None)
    assert find_group("billing").batch == 20


def test_a_batch_has_a_message() -> None:
    with pytest.raises(ConfigurationError, match=r"batch=0 must be .* at least 1"):
        consumer("orders", group="billing", batch=0)(handle)


class DeclaredTopic:
    """What is known of a declared topic here."""

    name = "orders"

    def __repr__(self) -> str:
        return "<Topic orders>"

    def consumer(self, *, group: str) -> None:
        """Declare a handler."""


class Name(enum.StrEnum):
    ORDERS = "orders"


@pytest.mark.parametrize(
    ("topic", "hint"),
    [
        (["orders", "returns"], r"\['orders', 'returns'\] .*@consumer\(\*topics, "),
        (DeclaredTopic(), r"<Topic orders> .*its \.name, 'orders', or .* \.consumer\("),
        (None, "None .*as a str"),
        (b"orders", "b'orders' .*as a str"),
    ],
)
def test_what_is_not_the_name_of_a_topic_is_answered_with_the_next_step(
    topic: Any, hint: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"handle: {hint}"):
        consumer(topic, group="billing")(handle)
    if topic is not None:
        with pytest.raises(ConfigurationError, match=f"handle: {hint}"):
            consumer("payments", group="billing", dead_letters=topic)(handle)


def test_a_topic_may_be_the_member_of_an_enum() -> None:
    consumer(Name.ORDERS, group="billing")(handle)
    assert find_group("billing").topics == ("orders",)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"key": "message_id"}, "key='message_id' must be a function"),
        ({"delay": 30}, r"delay=30 must be a timedelta, for instance timedelta\("),
        ({"delay": None}, "delay=None must be a timedelta"),
        ({"attempts": "3"}, "attempts='3' must be a whole number, at least 1"),
        ({"attempts": True}, "attempts=True must be a whole number"),
        ({"batch": "20"}, "batch='20' must be a whole number"),
        ({"batch": True}, "batch=True must be a whole number"),
        ({"batch": None}, "batch=None must be a whole number"),
        ({"group": None}, "group: The consumer must be a str, not None"),
        ({"group": 7}, "group: The consumer must be a str, not 7"),
    ],
)
def test_an_argument_of_another_type_is_named(
    options: dict[str, Any], error: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"handle: {error}"):
        consumer("orders", **{"group": "billing", **options})(handle)


def test_a_handler_that_transforms_has_no_batch_of_its_own() -> None:
    with pytest.raises(ConfigurationError, match="remove batch=2"):
        consumer("orders", group="billing", batch=2, transforms=True)(handle)


def test_a_group_has_a_handler_for_each_topic() -> None:
    consumer("orders", group="billing")(handle)
    consumer("returns", group="billing", dead_letters="bad")(lambda _: None)
    group = find_group("billing")
    assert group.topics == ("orders", "returns")
    assert group.dead_letter_topic("orders", ".dlt") == "orders.dlt"
    assert group.dead_letter_topic("returns", ".dlt") == "bad"


def test_a_coroutine_is_called_to_its_end() -> None:
    async def answer(message: ConsumedMessage) -> str:
        return message.topic

    consumer("orders", group="billing")(answer)
    subscription = find_group(None).of("orders")
    assert subscription.handle(ConsumedMessage(topic="orders")) == "orders"


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({}, {"topics": ["orders"]}, "handles orders in the group 'billing' already"),
        ({}, {"topics": ["b"], "transforms": True}, "either all transform or none"),
        ({}, {"topics": []}, "needs a topic"),
        ({}, {"topics": ["a b"]}, "'a b' is not a Kafka topic"),
        ({}, {"topics": ["b"], "dead_letters": "b"}, "its own dead letter topic"),
        ({}, {"topics": ["b"], "group": ""}, "consumer has 0 bytes"),
    ],
)
def test_contradictions_are_named(
    first: dict[str, Any], second: dict[str, Any], message: str
) -> None:
    consumer("orders", group="billing", **first)(handle)
    options = {"group": "billing", **second}
    topics = options.pop("topics")
    with pytest.raises((ConfigurationError, ValueError), match=message):
        consumer(*topics, **options)(handle)


def test_a_handler_that_is_once_already_is_refused() -> None:
    """Its claim would find the runner's, and its body would never run."""
    decorated = once(consumer="billing")(handle)
    with pytest.raises(ConfigurationError, match="remove @once"):
        consumer("orders", group="billing")(decorated)


class Handler:
    """Not a handler: a call would only make one of these."""

    def __init__(self, message: ConsumedMessage) -> None:
        self.message = message

    def handle(self, message: ConsumedMessage) -> None:
        """A handler."""


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (Handler, "Handler is a class, and a call would only make an object"),
        (lambda: None, "must take one argument, the message: too many positional"),
        (lambda _message, _more: None, "the message: missing a required argument"),
        (Handler.handle, "the message: missing a required argument: 'message'"),
    ],
)
def test_what_cannot_be_called_with_a_message_is_refused(wrong: Any, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        consumer("orders", group="billing")(wrong)


METHOD = Handler(ConsumedMessage(topic="orders")).handle


@pytest.mark.parametrize("handler", [min, print, dict.fromkeys, METHOD])
def test_whatever_takes_a_message_is_a_handler(handler: Any) -> None:
    consumer("orders", group="billing")(handler)


@pytest.mark.parametrize("group", ["", "x" * 256, "two\nlines"])
def test_a_group_without_a_usable_name_is_refused(group: str) -> None:
    with pytest.raises(ConfigurationError, match="handle: group: "):
        consumer("orders", group=group)(handle)


def test_without_handlers_it_is_said_where_they_belong() -> None:
    with pytest.raises(ConfigurationError, match="module consumers"):
        find_group(None)


def test_several_groups_must_be_chosen_from() -> None:
    consumer("orders", group="billing")(handle)
    consumer("orders", group="search")(handle)
    # Empty as from a variable that is not set.
    for name in (None, ""):
        with pytest.raises(ConfigurationError, match=r"--group billing \| search"):
            find_group(name)
    with pytest.raises(ConfigurationError, match=r"'serch'.*billing, search"):
        find_group("serch")
    assert find_group("search").name == "search"


def test_a_partial_function_is_a_handler() -> None:
    def handle(message: ConsumedMessage, region: str) -> None: ...

    consumer("orders", group="partial")(partial(handle, region="eu"))
    (subscription,) = find_group("partial").subscriptions
    assert "partial" in subscription.name
