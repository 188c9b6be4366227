"""The message that handlers get."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from django_outbox import ConsumedMessage

ID = "8c5c9d3e-6d0a-4f0e-8a5d-0f6f6d1c2b3a"


def message(*headers: tuple[str, bytes | None], **values: Any) -> ConsumedMessage:
    return ConsumedMessage(topic="orders", headers=headers, **values)


def test_the_last_message_id_counts() -> None:
    """The harvester writes its own headers behind all others."""
    forged = ("outbox-message-id", b"forged")
    assert message(forged, ("outbox-message-id", ID.encode())).message_id == ID


@pytest.mark.parametrize(
    "value", [None, b"", b"\xff\xfe", b"a\0b", b"two\nlines", b"x" * 256]
)
def test_what_is_no_id_is_not_taken_for_one(value: bytes | None) -> None:
    """Two ids that look the same after a repair would make one message vanish."""
    odd = message(("outbox-message-id", value), partition=2, offset=7)
    assert odd.message_id is None
    assert odd.identity == "orders/2/7"


def test_without_an_id_the_place_and_the_time_identify() -> None:
    """A topic that was created again has other messages at the same offsets."""
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
    assert message(offset=9, timestamp=moment).identity == "orders/0/9@1767323045678"


def test_headers_of_the_outbox_are_understood() -> None:
    known = message(("outbox-source", b"shop"), ("outbox-created-at", b"1500000"))
    assert known.source == "shop"
    assert known.created_at == datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)
    assert message(("outbox-created-at", b"yesterday")).created_at is None


def test_values_are_read_as_text_and_json() -> None:
    assert message(value=b'{"a": [1]}').json() == {"a": [1]}
    assert message(value="grün".encode()).text() == "grün"
    assert message(key=b"17").key_text() == "17"
    tombstone = message()
    assert tombstone.is_tombstone
    assert (tombstone.json(), tombstone.text(), tombstone.key_text()) == (None, "", "")


def test_a_log_line_shows_nothing_of_the_payload() -> None:
    shown = repr(message(("a", b"secret"), key=b"secret", value=b"secret"))
    assert "orders" in shown
    assert "secret" not in shown
