"""The verbs of `manage.py outbox` that hold records back: pause, resume."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from typing import Any

from django.core.management.base import CommandError
from django.utils import timezone

from ..exceptions import InvalidMessage
from ..operations import pausing
from ..operations.pausing import EVERYTHING, name_of
from ..wording import count, duration
from .answer import Answer


def add_parsers(verbs: Any, shared: Sequence[ArgumentParser]) -> None:
    """Add the options of these verbs."""
    pause_options = verbs.add_parser(
        "pause", help="keep records of a topic, a key, or all, unsent", parents=shared
    )
    resume_options = verbs.add_parser(
        "resume", help="send paused records again", parents=shared
    )
    for options, of_all in (
        (pause_options, "the whole outbox"),
        (resume_options, "end every pause"),
    ):
        options.add_argument("topic", nargs="?", default="", metavar="TOPIC")
        options.add_argument("--key", metavar="KEY", help="only this key of the topic")
        options.add_argument("--all", action="store_true", help=of_all)
    pause_options.add_argument("--reason", default="", help="shown beside the pause")
    pause_options.set_defaults(run=pause)
    resume_options.set_defaults(run=resume)


def pause(alias: str, options: dict[str, Any], answer: Answer) -> None:
    """Keep records unsent until they are resumed."""
    topic, key = _wanted(options)
    try:
        is_new = pausing.pause(alias, topic, key, reason=options["reason"])
    except InvalidMessage as exc:
        raise CommandError(str(exc)) from exc
    answer.document |= {"changed": int(is_new), "pauses": pausing.pauses(alias)}
    name = name_of(topic, key)
    if not is_new:
        answer.say(f"{name} was paused already")
        return
    answer.say(
        f"{name} is paused: the leader stops within about a second, and records that "
        "are on their way still arrive"
    )


def resume(alias: str, options: dict[str, Any], answer: Answer) -> None:
    """Let paused records go on."""
    topic, key = _wanted(options)
    ended = pausing.resume(alias, topic, key)
    left = pausing.pauses(alias)
    answer.document |= {"changed": ended, "pauses": left}
    if not ended:
        what = "Nothing" if topic == EVERYTHING else name_of(topic, key)
        raise CommandError(f"{what} is not paused. {_listed(left)}")
    answer.say(f"{count(ended, 'pause')} ended", *describe(left))


def describe(found: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Describe what is paused in lines; nothing where nothing is."""
    for row in found:
        name = name_of(row["kafka_topic"], row["kafka_key"])
        age = duration((timezone.now() - row["paused_at"]).total_seconds())
        reason = f": {row['reason']}" if row["reason"] else ""
        yield f"paused   {name}, since {age}{reason}"


def _wanted(options: dict[str, Any]) -> tuple[str, str | None]:
    topic, key = options["topic"], options["key"]
    if bool(topic) == options["all"]:
        raise CommandError("Give a topic, or --all.")
    if options["all"] and key is not None:
        raise CommandError("A key belongs to a topic: give the topic instead of --all.")
    return topic, key


def _listed(left: Sequence[dict[str, Any]]) -> str:
    if not left:
        return "There is no pause."
    names = [name_of(row["kafka_topic"], row["kafka_key"]) for row in left]
    return f"These are: {', '.join(names)}."
