"""What `manage.py outbox series` does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from django.core.management.base import CommandError
from django.db import transaction

from ..exceptions import StashError
from ..models import Series
from ..series import discard_series, release_series

SHOWN: Final = 100
"""Open series that `list` shows, the oldest first."""


def list_series(alias: str) -> Iterator[str]:
    """Describe the open series, one a line."""
    found = list(Series.objects.using(alias).open().order_by("id")[: SHOWN + 1])
    for series in found[:SHOWN]:
        expected = "" if series.expected is None else f" of {series.expected}"
        end = (
            f"{series.on_timeout} at {series.expires_at.isoformat()}"
            if series.expires_at
            else "no time-out"
        )
        yield f"{series.name!r}  {series.staged}{expected} staged, {end}"
    if len(found) > SHOWN:
        yield f"and more: the {SHOWN} oldest are shown"
    if not found:
        yield "no series is open"


def close_series(alias: str, action: str, names: Sequence[str]) -> Iterator[str]:
    """
    Release or discard series, each in a transaction of its own.

    Raises:
        CommandError: one cannot be closed; those before it were.
    """
    if not names:
        raise CommandError(f"Name the series to {action}.")
    for name in names:
        try:
            with transaction.atomic(using=alias):
                if action == "release":
                    done = f"{len(release_series(name, using=alias))} in the outbox"
                else:
                    done = f"{discard_series(name, using=alias)} discarded"
        except StashError as exc:
            raise CommandError(str(exc)) from exc
        yield f"{name!r}  {done}"
