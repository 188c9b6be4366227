"""Dead letters: whole, and in versions that every topic can take."""

from __future__ import annotations

from hashlib import sha256

import pytest

from django_outbox import ConsumedMessage
from django_outbox.consuming.dead_letters import dead_letters, may_accept_smaller
from django_outbox.consuming.reasons import bounded, summary
from django_outbox.exceptions import RecordPoisoned
from django_outbox.message.incoming import OutgoingMessage

LARGE = b"v" * 20_000_000


def letters_of(
    message: ConsumedMessage, error: str = "why"
) -> tuple[OutgoingMessage, ...]:
    return dead_letters(
        message,
        topic="orders.dlt",
        group="billing",
        error=LookupError(error),
        attempts=5,
    )


def told(letter: OutgoingMessage) -> dict[str, str | bytes | None]:
    return {
        name.removeprefix("outbox-dlt-"): value
        for name, value in letter.headers
        if name.startswith("outbox-dlt-")
    }


def size(letter: OutgoingMessage) -> int:
    parts = [letter.key, letter.value, *(part for h in letter.headers for part in h)]
    return sum(len(p.encode() if isinstance(p, str) else p or b"") for p in parts)


def test_a_whole_letter_keeps_all_and_replaces_an_earlier_reason() -> None:
    message = ConsumedMessage(
        topic="orders",
        key=b"k",
        value=b"v",
        headers=(("a", b"1"), ("outbox-dlt-reason", b"old"), ("a", None)),
    )
    whole, *_ = letters_of(message)
    assert (whole.topic, whole.key, whole.value) == ("orders.dlt", b"k", b"v")
    assert whole.headers[:2] == [("a", b"1"), ("a", None)]
    assert told(whole) == {
        "group": "billing",
        "topic": "orders",
        "partition": "0",
        "offset": "0",
        "attempts": "5",
        "error": "LookupError",
        "reason": "why",
    }


def test_the_second_gives_size_and_digest_in_the_place_of_the_value() -> None:
    message = ConsumedMessage(
        topic="orders", key=b"k", value=LARGE, headers=(("a", b"1"),)
    )
    _, second, _ = letters_of(message)
    assert (second.key, second.value) == (b"k", b"")
    assert ("a", b"1") in second.headers
    assert told(second)["value-size"] == "20000000"
    assert told(second)["value-sha256"] == sha256(LARGE).hexdigest()
    assert size(second) < 1000


def test_the_smallest_is_small_whatever_the_message_holds() -> None:
    """Bombs of headers, keys, names and texts included."""
    headers = [(f"h{n}" * 100, b"x" * 1000) for n in range(5000)]
    message = ConsumedMessage(
        topic="t" * 249,
        key=LARGE,
        value=LARGE,
        headers=(*headers, ("outbox-message-id", b"i" * 255)),
    )
    *_, smallest = letters_of(message, "é" * 1_000_000)
    assert size(smallest) < 2500
    assert ("outbox-message-id", "i" * 255) in smallest.headers
    assert told(smallest)["headers-count"] == "5001"
    count = sum(len(n) + len(v) for n, v in message.headers if v is not None)
    assert told(smallest)["headers-size"] == str(count)
    assert told(smallest)["key-size"] == str(len(LARGE))
    assert told(smallest)["key-sha256"] == sha256(LARGE).hexdigest()
    assert smallest.key == f"{'t' * 249}/0/0".encode()


def test_a_tombstone_stays_one_and_a_value_never_becomes_one() -> None:
    """Sent back to its topic, it would delete what it should have changed."""
    tombstones = letters_of(ConsumedMessage(topic="orders", key=b"k"))
    assert [letter.value for letter in tombstones] == [None, None]
    values = letters_of(ConsumedMessage(topic="orders", key=b"k", value=b"v"))
    assert [letter.value for letter in values] == [b"v", b"", b""]


def received(letter: OutgoingMessage, offset: int) -> ConsumedMessage:
    """A letter, as the consumer of its topic has it."""
    headers = [(n, v.encode() if isinstance(v, str) else v) for n, v in letter.headers]
    assert not isinstance(letter.key, str)
    assert not isinstance(letter.value, str)
    return ConsumedMessage(
        topic=letter.topic,
        partition=1,
        offset=offset,
        key=letter.key,
        value=letter.value,
        headers=tuple(headers),
    )


def retried(message: ConsumedMessage, topic: str, error: str) -> list[OutgoingMessage]:
    return [
        *dead_letters(
            message,
            topic=topic,
            last_topic="orders.dlt",
            group="billing",
            error=LookupError(error),
            attempts=2,
            is_retry=message.topic != "orders",
        )
    ]


def test_only_a_whole_letter_is_retried() -> None:
    message = ConsumedMessage(topic="orders", key=b"k", value=b"v", offset=7)
    letters = retried(message, "retry-1", "why")
    topics = [letter.topic for letter in letters]
    assert topics == ["retry-1", "orders.dlt", "orders.dlt"]


def test_a_retry_that_fails_leads_back_to_the_first_failure() -> None:
    message = ConsumedMessage(
        topic="orders",
        partition=2,
        offset=7,
        key=b"k",
        value=b"v",
        headers=(("a", b"1"), ("outbox-dlt-topic", b"forged")),
    )
    first, *_ = retried(message, "retry-1", "first")
    second, *_ = retried(received(first, 40), "retry-2", "second")
    third, *_ = retried(received(second, 50), "orders.dlt", "third")
    assert ("outbox-dlt-topic", "forged") not in first.headers
    assert third.headers[0] == ("a", b"1")
    last = received(third, 60)
    position = [
        last.header(f"outbox-dlt-{n}") for n in ("topic", "partition", "offset")
    ]
    assert position == ["orders", "2", "7"]
    assert last.header("outbox-dlt-attempts") == "6"
    reasons = [v for n, v in last.headers if n == "outbox-dlt-reason"]
    assert reasons == [b"first", b"second", b"third"]
    assert last.message_id == message.identity


def test_a_message_that_was_written_into_a_retry_topic_failed_there() -> None:
    """And what somebody has written about its attempts is no number."""
    headers = (("outbox-dlt-attempts", b"many"),)
    message = ConsumedMessage(topic="retry-1", offset=3, value=b"v", headers=headers)
    whole, *_ = retried(message, "orders.dlt", "why")
    assert told(whole)["topic"] == "retry-1"
    assert told(whole)["offset"] == "3"
    assert told(whole)["attempts"] == "2"


def test_a_message_keeps_the_id_that_it_has() -> None:
    """Without one it is known by its position."""
    message = ConsumedMessage(
        topic="orders", value=b"v", headers=(("outbox-message-id", b"an-id"),)
    )
    whole, *_ = retried(message, "retry-1", "why")
    ids = [value for name, value in whole.headers if name == "outbox-message-id"]
    assert ids == [b"an-id"]
    without_id = ConsumedMessage(topic="orders", value=b"v")
    whole, *_ = retried(without_id, "orders.dlt", "why")
    assert dict(whole.headers)["outbox-message-id"] == without_id.identity


@pytest.mark.parametrize(
    ("code", "is_certain", "expected"),
    [
        ("MSG_SIZE_TOO_LARGE", True, True),
        ("MSG_SIZE_TOO_LARGE", False, False),
        ("INVALID_RECORD", True, True),
        ("UNKNOWN_TOPIC_OR_PART", True, False),
        ("TOPIC_AUTHORIZATION_FAILED", True, False),
    ],
)
def test_a_letter_shrinks_only_where_that_can_help(
    code: str, is_certain: bool, expected: bool
) -> None:
    refusal = RecordPoisoned("no", code=code, is_certain=is_certain)
    assert may_accept_smaller(refusal) is expected


def test_a_text_is_cut_between_characters() -> None:
    assert bounded("abc", 3) == "abc"
    assert bounded("abcdef", 5) == "ab…"
    assert len(bounded("é" * 1000, 100).encode()) <= 100
    assert bounded("\ud800", 10) == "?"


def test_a_text_cannot_forge_lines_or_colours() -> None:
    error = LookupError("a\n2026-01-01 INFO leader_acquired \x1b[31m")
    assert summary(error) == (
        "LookupError: a\\n2026-01-01 INFO leader_acquired \\x1b[31m"
    )


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def test_an_exception_that_cannot_be_shown_stops_nothing() -> None:
    assert summary(Unspeakable()) == "Unspeakable"
