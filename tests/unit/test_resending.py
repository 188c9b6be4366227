"""Dead letters that are sent to their topic again."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest

from django_outbox.consuming.dead_letters import dead_letters
from django_outbox.consuming.resending import DeadLetter, choose, destination
from django_outbox.exceptions import ConsumingError
from django_outbox.message.incoming import ConsumedMessage, OutgoingMessage
from django_outbox.settings.options import OutboxSettings

OPTIONS = OutboxSettings(LEADER_TOPIC="leader")

MESSAGE = ConsumedMessage(
    topic="orders",
    partition=2,
    offset=17,
    key=b"customer-1",
    value=b"secret",
    headers=(("h", b"v"), ("outbox-message-id", b"an-id")),
)


def received(sent: OutgoingMessage, *, offset: int = 5) -> ConsumedMessage:
    """A message that was sent, as a consumer of its topic has it."""
    encoded = [(n, v.encode() if isinstance(v, str) else v) for n, v in sent.headers]
    key = sent.key.encode() if isinstance(sent.key, str) else sent.key
    value = sent.value.encode() if isinstance(sent.value, str) else sent.value
    return ConsumedMessage(
        topic=sent.topic, offset=offset, key=key, value=value, headers=tuple(encoded)
    )


def letter_of(message: ConsumedMessage, *, version: int = 0) -> DeadLetter:
    versions = dead_letters(
        message,
        topic="orders.dlt",
        group="billing",
        error=ValueError("too much"),
        attempts=5,
    )
    return DeadLetter(message=received(versions[version]))


def nowhere(topic: str, partition: int, offset: int) -> ConsumedMessage | None:
    raise AssertionError("this letter is whole")


def test_a_report_says_why_and_shows_no_payload() -> None:
    report = letter_of(MESSAGE).report()
    assert report == {
        "position": "0/5",
        "time": None,
        "message_id": "an-id",
        "topic": "orders",
        "at": "2/17",
        "group": "billing",
        "attempts": 5,
        "error": "ValueError",
        "reason": "too much",
        "is_shortened": False,
    }


def test_the_message_goes_out_as_it_once_came_in() -> None:
    sent = letter_of(MESSAGE).original(nowhere, to="orders")
    assert sent == OutgoingMessage(
        "orders", MESSAGE.key, MESSAGE.value, list(MESSAGE.headers)
    )


def test_a_tombstone_stays_one() -> None:
    sent = letter_of(replace(MESSAGE, value=None)).original(nowhere, to="orders")
    assert sent.value is None


@pytest.mark.parametrize("version", [1, 2])
def test_what_was_left_out_comes_from_the_topic_itself(version: int) -> None:
    asked: list[Any] = []

    def fetch(*at: Any) -> ConsumedMessage:
        asked.append(at)
        return MESSAGE

    letter = letter_of(MESSAGE, version=version)
    assert letter.is_shortened
    sent = letter.original(fetch, to="orders")
    assert asked == [("orders", 2, 17)]
    assert (sent.key, sent.value, sent.headers) == (
        MESSAGE.key,
        MESSAGE.value,
        list(MESSAGE.headers),
    )


def test_a_retry_without_an_id_is_known_by_its_position() -> None:
    """Its shortened letter has the position as id, and the message has none."""
    message = replace(MESSAGE, headers=())
    headers = (
        ("outbox-message-id", message.identity.encode()),
        *((f"outbox-dlt-{n}", v) for n, v in (("topic", b"orders"), ("offset", b"17"))),
        ("outbox-dlt-partition", b"2"),
    )
    retry = replace(message, topic="orders.billing.retry-1", headers=headers)
    versions = dead_letters(
        retry,
        topic="orders.dlt",
        group="billing",
        error=ValueError("too much"),
        attempts=1,
        is_retry=True,
    )
    letter = DeadLetter(message=received(versions[1]))
    assert destination(letter, OPTIONS) == "orders"
    sent = letter.original(lambda *at: {("orders", 2, 17): message}[at], to="orders")
    assert (sent.value, sent.headers) == (
        b"secret",
        [("outbox-message-id", message.identity)],
    )
    with pytest.raises(ConsumingError, match="no longer at orders/2, offset 17"):
        letter.original(lambda *_: replace(message, offset=18), to="orders")


@pytest.mark.parametrize(
    "found",
    [
        None,
        replace(MESSAGE, value=b"another"),
        replace(MESSAGE, headers=(("outbox-message-id", b"another"),)),
    ],
)
def test_a_message_that_is_gone_is_not_sent_in_part(
    found: ConsumedMessage | None,
) -> None:
    """The topic may have been created again, and have another at this offset."""
    letter = letter_of(MESSAGE, version=1)
    with pytest.raises(ConsumingError, match="no longer at orders/2, offset 17"):
        letter.original(lambda *_: found, to="orders")


def test_a_header_cannot_choose_the_topic() -> None:
    """Anyone who may write dead letters could write anywhere."""
    letter = letter_of(MESSAGE)
    assert destination(letter, OPTIONS) == "orders"
    forged = letter_of(replace(MESSAGE, topic="payments"))
    with pytest.raises(ConsumingError, match="'payments', which has another"):
        destination(forged, OPTIONS)
    assert destination(forged, OPTIONS, to="payments") == "payments"
    stranger = DeadLetter(message=ConsumedMessage(topic="orders.dlt"))
    with pytest.raises(ConsumingError, match="none"):
        destination(stranger, OPTIONS)


@pytest.mark.parametrize("topic", ["leader", "leader.ledger", "x.ledger", "__offsets"])
def test_reserved_topics_are_refused(topic: str) -> None:
    with pytest.raises(ConsumingError, match="reserved"):
        destination(letter_of(MESSAGE), OPTIONS, to=topic)


def test_letters_are_chosen_by_their_positions() -> None:
    messages = {
        (p, o): ConsumedMessage(topic="t.dlt", partition=p, offset=o)
        for p, o in ((0, 1), (0, 2), (1, 1))
    }

    def chosen(*positions: str) -> list[str]:
        found = choose(positions, lambda *place: messages.get(place))
        return [letter.position for letter in found]

    assert chosen("1/1", "0/1", "1/1") == ["1/1", "0/1"]
    with pytest.raises(ConsumingError, match="at 7/7, 8/8"):
        chosen("0/1", "7/7", "8/8")


def test_a_strange_header_is_no_number() -> None:
    headers = (("outbox-dlt-attempts", "٣".encode()), ("outbox-dlt-offset", b"\xff"))
    letter = DeadLetter(message=ConsumedMessage(topic="t.dlt", headers=headers))
    assert letter.report()["attempts"] == 0


def test_digest_of_the_value_is_sha256() -> None:
    header = letter_of(MESSAGE, version=1).message.header("outbox-dlt-value-sha256")
    assert header == sha256(MESSAGE.value or b"").hexdigest()
