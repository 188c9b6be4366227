"""`manage.py outbox dead-letters`: on a real broker."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from django.core.management import CommandError

from django_outbox.conf import settings as outbox_settings
from django_outbox.consuming.dead_letters import dead_letters
from django_outbox.kafka.consumer_output import KafkaDeadLetters
from django_outbox.message.incoming import ConsumedMessage, OutgoingMessage

from ..services import Topics
from . import outbox_command
from .streams import streaming

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.usefixtures("bootstrap_servers"),
]


def run(*arguments: str) -> str:
    return outbox_command.run("dead-letters", *arguments)


@pytest.fixture
def dead(topics: Topics, topic: str) -> str:
    """The dead letter topic of a topic, with two partitions."""
    return topics.create(f"{topic}.dlt", partitions=2)


@pytest.fixture
def letters(topics: Topics, topic: str, dead: str) -> list[OutgoingMessage]:
    """Three dead letters; the second is shortened, and its message is in the topic."""
    producer = KafkaDeadLetters(outbox_settings.snapshot())
    original = OutgoingMessage(topic, "key", "a large secret", [("h", "v")])
    producer.send(original)
    (stored,) = topics.read(topic)
    _, milliseconds = stored.timestamp()
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    made = []
    for number, partition, version in ((0, 0, 0), (1, 0, 1), (2, 1, 0)):
        message = ConsumedMessage(
            topic=topic,
            offset=0,
            key=b"key",
            value=b"a large secret" if version else f"secret {number}".encode(),
            headers=(("h", b"v"),),
            timestamp=at,
        )
        versions = dead_letters(
            message, topic=dead, group="billing", error=ValueError("no"), attempts=5
        )
        made.append(versions[version]._replace(partition=partition))
    for letter in made:
        producer.send(letter)
    return made


@pytest.mark.usefixtures("letters")
def test_they_are_listed_without_their_payload(topic: str, dead: str) -> None:
    shown = run("list", dead)
    first, why, second, *_ = shown.splitlines()
    assert first.startswith("0/0  20")
    assert first.endswith(f"of {topic}/0/0, group billing, 5 attempts")
    assert why == "  ValueError: no"
    assert second.endswith("5 attempts, shortened")
    assert "secret" not in shown
    found = json.loads(run("list", dead, "--json"))["dead_letters"]
    assert [letter["position"] for letter in found] == ["0/0", "0/1", "1/0"]
    assert "secret" not in str(found)
    limited = json.loads(run("list", dead, "--limit", "1", "--json"))
    assert [letter["position"] for letter in limited["dead_letters"]] == ["0/1", "1/0"]
    assert limited["is_capped"]
    assert "there may be earlier ones" in run("list", dead, "--limit", "1")
    assert "earlier" not in shown


def test_those_that_come_meanwhile_do_not_hold_up_the_list(
    topics: Topics, dead: str
) -> None:
    with streaming(topics.servers, dead, b"x"):
        run("list", dead, "--limit", "1")
        found = json.loads(run("list", dead, "--limit", "3", "--json"))
    assert len(found["dead_letters"]) == 3


@pytest.mark.usefixtures("letters")
def test_they_are_sent_again_whole(topics: Topics, topic: str, dead: str) -> None:
    shown = json.loads(run("resend", dead, "--all", "--json"))
    assert [sent["topic"] for sent in shown["resent"]] == [topic] * 3
    _original, *sent = topics.read(topic)
    assert [message.value() for message in sent] == [
        b"secret 0",
        b"a large secret",
        b"secret 2",
    ]
    for message in sent:
        assert message.key() == b"key"
        headers = message.headers() or []
        # The position of the first one: other groups that have handled it skip it.
        assert [name for name, _ in headers] == ["h", "outbox-message-id"]
        assert str(dict(headers)["outbox-message-id"]).startswith(f"b'{topic}/0/0@")
    # They stay where they are. A second time is possible, and harmless by the id.
    assert run("resend", dead, "0/0", "0/0", "--limit", "1").splitlines() == [
        f"0/0 sent to {topic}",
        "1 message sent again",
    ]
    assert run("resend", dead, "1/0").splitlines() == [
        f"1/0 sent to {topic}",
        "1 message sent again",
    ]


@pytest.mark.usefixtures("letters")
def test_another_topic_has_to_be_named(topics: Topics, dead: str) -> None:
    elsewhere = topics.create()
    run("resend", dead, "0/0", "--to", elsewhere)
    assert [message.value() for message in topics.read(elsewhere)] == [b"secret 0"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["resend", "{dead}"], "Give positions"),
        (["resend", "{dead}", "0/0", "--all"], "Give positions"),
        (["resend", "{dead}", "9/9"], "There is no dead letter at 9/9"),
        (["resend", "{dead}", "0/0", "--to", "x.ledger"], "reserved"),
        (["list", "{dead}.missing"], "Cannot read the topic"),
        (["resend", "{dead}", "first"], "must look like 0/17"),
    ],
)
@pytest.mark.usefixtures("letters")
def test_what_cannot_be_done_is_one_line(
    dead: str, arguments: list[str], error: str
) -> None:
    with pytest.raises(CommandError, match=error) as caught:
        run(*(argument.format(dead=dead) for argument in arguments))
    assert "\n" not in str(caught.value)


def test_an_empty_topic_says_so(dead: str) -> None:
    assert run("list", dead) == "no dead letters\n"
