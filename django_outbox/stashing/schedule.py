"""
For what a message waits: checked before the database sees it.

`stash()` makes `ScheduleOptions` of its arguments, `stashing/staging.py` acts on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from ..exceptions import InvalidMessage
from ..message.limits import measure, shown

MAX_NAME_LENGTH: Final = 255
"""Characters of a series' name: the width of its column."""
MAX_EXPECTED: Final = 2**31 - 1
"""Messages of a series: what the column can hold."""
MAX_DELAY: Final = timedelta(days=36_500)
"""The longest wait: a hundred years, within what PostgreSQL can add to a date."""


@dataclass(frozen=True, slots=True)
class ScheduleOptions:
    """For what messages wait: for their series, or for a moment."""

    series: str | None
    expected: int | None
    timeout: float | None
    """Seconds; None: what the settings say, 0: for ever."""
    moment: datetime | None
    delay: timedelta | None
    """Instead of `moment`: from now, by the database's clock."""

    @classmethod
    def of(
        cls,
        series: str | None,
        expected: int | None,
        timeout: float | None,
        not_before: datetime | timedelta | None,
        *,
        ordered: bool = False,
    ) -> ScheduleOptions | None:
        """
        Check what the caller asks for; None: send at once.

        Raises:
            InvalidMessage: a value is wrong, or two do not go together.
        """
        if series is None:
            for name, value in (("expected", expected), ("timeout", timeout)):
                if value is not None:
                    raise InvalidMessage(
                        f"{name}: {value!r} means nothing without series=; add it, "
                        f"or leave {name} out."
                    )
            if not_before is None:
                return None
        else:
            check_name(series)
            _check_expected(expected)
            _check_timeout(timeout)
        if not_before is not None:
            _check_not_before(not_before)
        if series is not None and not_before is not None:
            raise InvalidMessage(
                f"not_before: {not_before!r} and series={shown(series)} exclude each "
                "other: a series is sent when it is released. Leave one out."
            )
        if ordered:
            raise InvalidMessage(
                "ordered: a staged message gets its place when it is released, so "
                "there is nothing to order yet. Leave it out; "
                "release_series(..., ordered=True) does it for a series."
            )
        return cls(
            series=series,
            expected=expected,
            timeout=timeout,
            moment=not_before if isinstance(not_before, datetime) else None,
            delay=not_before if isinstance(not_before, timedelta) else None,
        )


def check_name(name: object) -> None:
    """Raise `InvalidMessage` unless this can be the name of a series."""
    if not isinstance(name, str):
        raise InvalidMessage(
            f"series: must be str, not {type(name).__name__}; give it a name."
        )
    if not 0 < len(name) <= MAX_NAME_LENGTH:
        raise InvalidMessage(
            f"series: {len(name)} characters; a name has 1 to {MAX_NAME_LENGTH}."
        )
    measure("series", name)


def _check_expected(expected: object) -> None:
    if expected is None:
        return
    if not isinstance(expected, int) or isinstance(expected, bool):
        raise InvalidMessage(
            f"expected: must be int, not {type(expected).__name__}; pass the number "
            "of messages."
        )
    if not 1 <= expected <= MAX_EXPECTED:
        raise InvalidMessage(
            f"expected: {expected} must be between 1 and {MAX_EXPECTED}."
        )


def _check_timeout(timeout: object) -> None:
    if timeout is None:
        return
    if not isinstance(timeout, int | float) or isinstance(timeout, bool):
        raise InvalidMessage(
            f"timeout: must be seconds, not {type(timeout).__name__}; pass a number."
        )
    if not 0 <= timeout <= MAX_DELAY.total_seconds():
        raise InvalidMessage(
            f"timeout: {timeout} must be between 0 (for ever) and "
            f"{MAX_DELAY.total_seconds():.0f} seconds."
        )


def _check_not_before(not_before: object) -> None:
    if isinstance(not_before, timedelta):
        if abs(not_before) > MAX_DELAY:
            raise InvalidMessage(
                f"not_before: {not_before} is more than {MAX_DELAY.days} days away."
            )
        return
    if not isinstance(not_before, datetime):
        raise InvalidMessage(
            "not_before: must be a datetime or a timedelta, not "
            f"{type(not_before).__name__}."
        )
    if not_before.utcoffset() is None:
        raise InvalidMessage(
            f"not_before: {not_before.isoformat()} has no time zone; use "
            "django.utils.timezone.now() + ..., make_aware(), or a timedelta."
        )
