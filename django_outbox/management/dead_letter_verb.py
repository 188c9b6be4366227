"""`manage.py outbox dead-letters`: list dead letters, and send them again."""

from __future__ import annotations

import re
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Any, Final

from django.core.management.base import CommandError

from ..consuming.resending import DeadLetter, choose, destination
from ..exceptions import OutboxError
from ..postgres.outbox_identity import named_settings
from ..settings.options import OutboxSettings
from ..wording import count, printable
from .answer import Answer

DEFAULT_LIMIT: Final = 100
"""Offsets at the end of each partition that are read."""


def add_parsers(verbs: Any, shared: Sequence[ArgumentParser]) -> None:
    """Add the options of this verb."""
    options = verbs.add_parser(
        "dead-letters",
        help="list the dead letters of a topic, or send them to their topic again",
        parents=shared,
    )
    options.add_argument("action", choices=("list", "resend"))
    options.add_argument(
        "topic", metavar="TOPIC", help="the dead letter topic: orders.dlt, for instance"
    )
    options.add_argument(
        "positions",
        nargs="*",
        type=_position,
        metavar="PARTITION/OFFSET",
        help="as `list` shows them",
    )
    options.add_argument("--all", action="store_true", help="all that `list` shows")
    options.add_argument(
        "--limit",
        type=int,
        default=DEFAULT_LIMIT,
        help="how far to go back in each partition; default: %(default)s",
    )
    options.add_argument(
        "--to", default="", metavar="TOPIC", help="send them to this topic instead"
    )
    options.set_defaults(run=dead_letters)


def dead_letters(alias: str, options: dict[str, Any], answer: Answer) -> None:
    """List the dead letters of a topic, or send them again."""
    resends = options["action"] == "resend"
    if resends and bool(options["positions"]) == options["all"]:
        raise CommandError("Give positions, as `dead-letters list` shows, or --all.")
    try:
        chosen = named_settings(alias)
        letters, is_whole = _read(chosen, options)
        if resends:
            _resend(chosen, letters, options, answer)
        else:
            answer.document["dead_letters"] = [letter.report() for letter in letters]
            answer.say(*_described(letters) or ["no dead letters"])
        answer.document["is_capped"] = not is_whole
        if not is_whole:
            answer.say("there may be earlier ones: --limit goes back further")
    except OutboxError as exc:
        raise CommandError(printable(str(exc))) from exc


def _read(
    chosen: OutboxSettings, options: dict[str, Any]
) -> tuple[list[DeadLetter], bool]:
    """Return the chosen dead letters, and whether the topic has no others."""
    # Import late: the other verbs do not load the Kafka client.
    from ..kafka.topic_tail import last_messages, message_at

    topic = options["topic"]
    if positions := options["positions"]:
        return choose(positions, partial(message_at, chosen, topic)), True
    last = last_messages(chosen, topic, limit=max(1, options["limit"]))
    return [DeadLetter(message=message) for message in last.messages], last.is_whole


def _resend(
    chosen: OutboxSettings,
    letters: list[DeadLetter],
    options: dict[str, Any],
    answer: Answer,
) -> None:
    from ..kafka.consumer_output import KafkaDeadLetters
    from ..kafka.topic_tail import message_at

    fetch = partial(message_at, chosen)
    # All are checked before the first is sent.
    messages = [
        letter.original(fetch, to=destination(letter, chosen, to=options["to"]))
        for letter in letters
    ]
    sent: list[dict[str, str]] = []
    answer.document["resent"] = sent
    with closing(KafkaDeadLetters(chosen)) as producer:
        for letter, message in zip(letters, messages, strict=True):
            producer.send(message)
            sent.append({"position": letter.position, "topic": message.topic})
            answer.say(f"{letter.position} sent to {message.topic}")
    answer.say(f"{count(len(sent), 'message')} sent again")


def _described(letters: list[DeadLetter]) -> list[str]:
    return [line for letter in letters for line in _lines(letter.report())]


def _lines(found: dict[str, Any]) -> Iterator[str]:
    shortened = ", shortened" if found["is_shortened"] else ""
    yield (
        f"{found['position']}  {found['time']}  of {found['topic']}/{found['at']}, "
        f"group {found['group']}, {count(found['attempts'], 'attempt')}{shortened}"
    )
    yield f"  {found['error']}: {found['reason']}"


def _position(text: str) -> str:
    if not re.fullmatch(r"[0-9]{1,10}/[0-9]{1,18}", text):
        raise ArgumentTypeError(f"{text!r} must look like 0/17")
    return text
