"""The verb `series` of `manage.py outbox`: list, release and discard open series."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Any, Final

from django.core.management.base import CommandError
from django.db import transaction

from ..exceptions import StashError
from ..models import Series
from ..stashing.series import discard_series, release_series
from ..wording import count, local_time, rfc_3339
from .answer import Answer
from .confirmation import confirm

MAX_LISTED: Final = 100
"""Open series that `list` shows, the oldest first."""


def add_parsers(verbs: Any, shared: Sequence[ArgumentParser]) -> None:
    """Add the options of the verb."""
    options = verbs.add_parser(
        "series", help="list, release or discard series", parents=shared
    )
    options.add_argument(
        "action", nargs="?", choices=("list", "release", "discard"), default="list"
    )
    options.add_argument("names", nargs="*", metavar="NAME")
    options.add_argument("--yes", action="store_true", help="do not ask")
    options.set_defaults(run=series)


def series(alias: str, options: dict[str, Any], answer: Answer) -> None:
    """List the open series, or close the named ones."""
    action, names = options["action"], options["names"]
    if action == "list":
        if names:
            raise CommandError(
                "`series list` lists every open series: leave out the names, or "
                "write `release` or `discard` before them."
            )
        list_series(alias, answer)
        return
    if action == "discard" and names:
        confirm(
            f"Drop the messages of {len(names)} series for good?",
            is_confirmed=options["yes"],
        )
    close_series(alias, action, names, answer)


def list_series(alias: str, answer: Answer) -> None:
    """Describe the open series, one a line."""
    found = list(Series.objects.using(alias).open().order_by("id")[: MAX_LISTED + 1])
    answer.document |= {
        "is_capped": len(found) > MAX_LISTED,
        "series": [_report(series) for series in found[:MAX_LISTED]],
    }
    answer.say(*map(_describe, found[:MAX_LISTED]))
    if len(found) > MAX_LISTED:
        answer.say(f"and more: the {MAX_LISTED} oldest are shown")
    if not found:
        answer.say("no series is open")


def close_series(alias: str, action: str, names: Sequence[str], answer: Answer) -> None:
    """
    Release or discard series, each in a transaction of its own.

    Raises:
        CommandError: one cannot be closed; those before it were, and are in the
            answer.
    """
    if not names:
        raise CommandError(f"Name the series to {action}.")
    closed: list[dict[str, Any]] = []
    answer.document |= {"action": action, "series": closed}
    for name in names:
        try:
            with transaction.atomic(using=alias):
                if action == "release":
                    messages = len(release_series(name, using=alias))
                    outcome = "in the outbox"
                else:
                    messages = discard_series(name, using=alias)
                    outcome = "discarded"
        except StashError as exc:
            raise CommandError(str(exc)) from exc
        closed.append({"name": name, "messages": messages})
        answer.say(f"{name!r}  {count(messages, 'message')} {outcome}")


def _report(series: Series) -> dict[str, Any]:
    end = series.expires_at
    return {
        "name": series.name,
        "staged": series.staged,
        "expected": series.expected,
        "expires_at": rfc_3339(end) if end else None,
        "on_timeout": series.on_timeout,
    }


def _describe(series: Series) -> str:
    expected = "" if series.expected is None else f" of {series.expected:,}"
    end = (
        f"{series.on_timeout} at {local_time(series.expires_at)}"
        if series.expires_at
        else "no time-out"
    )
    return f"{series.name!r}  {series.staged:,}{expected} staged, {end}"
