"""Times in the arguments of commands: ages, and moments of the past."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from datetime import UTC, datetime, timedelta
from typing import Final

from django.core.management.base import CommandError

_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def given_age(value: object) -> timedelta:
    """
    Return the age of an option, which `call_command()` hands over as it was given.

    Raises:
        CommandError: it is neither a `timedelta` nor the text of an age.
    """
    if isinstance(value, timedelta):
        return value
    try:
        return age(str(value))
    except ArgumentTypeError as error:
        raise CommandError(str(error)) from error


def age(text: str) -> timedelta:
    """
    Return an age such as `90d`, `12h`, `30m` or `45s`.

    Raises:
        ArgumentTypeError: the text is not an age.
    """
    match = re.fullmatch(r"([0-9]{1,6})([smhd])", text)
    if not match:
        raise ArgumentTypeError(f"{text!r} must look like 90d, 12h, 30m or 45s")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def past_moment(text: str) -> datetime:
    """
    Return a moment, given in ISO 8601 with its time zone, or as an age before now.

    Raises:
        ArgumentTypeError: the text is neither, has no time zone, or is in the future.
    """
    now = datetime.now(UTC)
    if re.fullmatch(r"[0-9]+[a-z]", text):
        try:
            return now - age(text)
        except OverflowError:
            raise ArgumentTypeError(f"{text!r} is too long ago") from None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(
            f"{text!r} must look like 2026-01-31T12:00:00Z, or like 90m"
        ) from None
    if moment.tzinfo is None:
        raise ArgumentTypeError(
            f"{text!r} has no time zone: add Z for UTC, or an offset such as +01:00"
        )
    if moment > now:
        raise ArgumentTypeError(
            f"{text!r} is in the future; it is {now:%Y-%m-%dT%H:%M:%SZ} now"
        )
    return moment
