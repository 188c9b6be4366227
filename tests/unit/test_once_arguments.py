"""What `once()` takes for a key, and what it refuses before any transaction."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

import pytest

from django_outbox import ConsumedMessage, InvalidKey, once
from django_outbox.idempotence.once import Once, is_once

MESSAGE = ConsumedMessage(topic="orders")

untyped = cast("Any", once)


@pytest.mark.parametrize("key", ["4711", UUID(int=1), lambda _: "4711"])
def test_a_message_and_a_key_are_refused(key: Any) -> None:
    """The key would have no effect."""
    with pytest.raises(InvalidKey, match=r"write once\(key=\.\.\., consumer="):
        untyped(MESSAGE, key=key, consumer="billing")


@pytest.mark.parametrize("key", [None, 7, b"k", ["k"]])
@pytest.mark.parametrize("name", ["message", "key"])
def test_what_is_neither_text_nor_a_function_is_no_key(name: str, key: Any) -> None:
    """None is what a missing header or task id is."""
    with pytest.raises(InvalidKey, match=f"not {type(key).__name__}; use str"):
        untyped(**{name: key}, consumer="billing")


def test_a_key_or_a_message_makes_a_block() -> None:
    for block in (
        once("4711", consumer="billing"),
        once(MESSAGE, consumer="billing"),
        once(key="4711", consumer="billing"),
        once(key=UUID(int=1), consumer="billing"),
    ):
        assert isinstance(block, Once)


def test_no_key_or_a_function_makes_a_decorator() -> None:
    assert is_once(once(consumer="billing")(print))
    assert is_once(once(consumer="billing", key=lambda *_: "4711")(print))


@pytest.mark.parametrize("consumer", [None, 7])
def test_a_consumer_has_a_name(consumer: Any) -> None:
    with pytest.raises(InvalidKey, match=f"must be a str, not {consumer}"):
        once("4711", consumer=consumer)
