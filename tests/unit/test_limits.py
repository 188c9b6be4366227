"""What a message may hold."""

from __future__ import annotations

from typing import Any

import pytest

from django_outbox.exceptions import InvalidMessage
from django_outbox.message.limits import (
    Topics,
    check_key,
    check_partition,
    check_value,
    shown,
    split_headers,
)
from django_outbox.settings.options import OutboxSettings


@pytest.mark.parametrize("topic", ["orders", "a", "A.b_c-9", "x" * 249, "_private"])
def test_a_kafka_topic_is_accepted(topic: str) -> None:
    Topics(OutboxSettings()).check(topic)


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        ("", "is not a valid topic name"),
        (".", "is not a valid topic name"),
        ("..", "is not a valid topic name"),
        ("x" * 250, "is not a valid topic name"),
        ("with space", "is not a valid topic name"),
        ("orders\n", "is not a valid topic name"),
        ("bestellungen-ü", "is not a valid topic name"),
        ("__consumer_offsets", "is reserved"),
        ("outbox-leader", "is reserved"),
        ("outbox-leader.ledger", "is reserved"),
        ("another-outbox.ledger", "is reserved"),
        (b"orders", "must be str, not bytes"),
        (None, "must be str, not NoneType"),
        (["orders"], "must be str, not list"),
    ],
)
def test_another_topic_is_refused(topic: Any, reason: str) -> None:
    with pytest.raises(InvalidMessage, match=f"^topic: .*{reason}"):
        Topics(OutboxSettings()).check(topic)


def test_a_topic_outside_the_allow_list_is_refused() -> None:
    topics = Topics(OutboxSettings(ALLOWED_TOPICS=("orders",)))
    topics.check("orders")
    with pytest.raises(InvalidMessage, match=r"'payments' is not in ALLOWED_TOPICS"):
        topics.check("payments")


def test_the_renamed_leader_topic_is_reserved() -> None:
    with pytest.raises(InvalidMessage, match="is reserved"):
        Topics(OutboxSettings(LEADER_TOPIC="boss")).check("boss")


def test_many_topics_do_not_fill_the_memory() -> None:
    """A topic made up for each message is checked anew and not remembered."""
    topics = Topics(OutboxSettings())
    for number in range(3000):
        topics.check(f"topic-{number}")
    assert len(topics.known) == 1000


@pytest.mark.parametrize("key", ["", "k", "ü" * 255, "😀"])
def test_a_text_key_is_accepted(key: str) -> None:
    check_key(key)


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        (7, r"must be str, not int; write key=str\(...\)"),
        (None, "must be str, not NoneType"),
        (b"k", "must be str, not bytes"),
        ("k" * 256, "256 characters; at most 255"),
        ("secret\0", "NUL character"),
        ("secret\ud800", "lone surrogate"),
    ],
)
def test_another_key_is_refused_and_not_shown(key: Any, reason: str) -> None:
    with pytest.raises(InvalidMessage, match=f"^key: .*{reason}") as caught:
        check_key(key)
    assert "secret" not in str(caught.value)


def test_the_limit_of_a_value_counts_bytes() -> None:
    check_value("ü" * 5, 10)
    check_value(b"\x00" * 10, 10)
    with pytest.raises(InvalidMessage, match=r"12 bytes .* MAX_VALUE_BYTES \(10\)"):
        check_value("ü" * 6, 10)
    with pytest.raises(InvalidMessage, match="11 bytes"):
        check_value(b"\x00" * 11, 10)


@pytest.mark.parametrize("value", ["secret\0", "secret\ud800", "secret" * 2])
def test_a_refused_value_is_not_shown(value: str) -> None:
    with pytest.raises(InvalidMessage, match=r"^value: ") as caught:
        check_value(value, 10)
    error: BaseException | None = caught.value
    while error is not None:
        assert "secret" not in str(error)
        error = error.__cause__


@pytest.mark.parametrize("partition", [None, 0, 5, 2**31 - 1])
def test_a_partition_number_is_accepted(partition: int | None) -> None:
    check_partition(partition)


@pytest.mark.parametrize("partition", [-1, 2**31, "0", True, 1.0])
def test_another_partition_is_refused(partition: Any) -> None:
    with pytest.raises(InvalidMessage, match=r"^partition: "):
        check_partition(partition)


def test_headers_keep_their_order_and_repeated_names() -> None:
    assert split_headers(None) == ([], [])
    assert split_headers({"b": "1", "a": "2"}) == (["b", "a"], ["1", "2"])
    pairs = [("a", "1"), ("a", "2")]
    assert split_headers(pairs) == (["a", "a"], ["1", "2"])
    assert split_headers(iter(pairs)) == (["a", "a"], ["1", "2"])


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"outbox-message-id": "x"}, "'outbox-message-id' begins with 'outbox-'"),
        ({"Outbox-Id": "x"}, "reserved"),
        ({"": "x"}, "not empty"),
        ({3: "x"}, "not int"),
        ({"a": 3}, "the value of 'a' must be str, not int"),
        ({"a": None}, "must be str, not NoneType"),
        ({"a": "secret\0"}, "the value of 'a': contains a NUL"),
        ({"a\0": "x"}, "a name: contains a NUL"),
        ([("a", "b", "c")], "pair, not tuple"),
        (["ab"], "pair, not str"),
        ("text", "pair, not str"),
        ({str(n): "" for n in range(101)}, "'100' is one more than 100"),
        ({"a": "x" * 32_768}, "with 'a' .* 32769 bytes, and at most 32768"),
    ],
)
def test_other_headers_are_refused(headers: Any, reason: str) -> None:
    with pytest.raises(InvalidMessage, match=f"^headers: .*{reason}") as caught:
        split_headers(headers)
    assert "secret" not in str(caught.value)


def test_what_is_shown_is_short_and_on_one_line() -> None:
    assert shown("a\nb") == r"'a\nb'"
    assert shown("x" * 100) == f"'{'x' * 60}…'"
