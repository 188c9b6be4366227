"""Options of series and of delayed messages, checked before the database sees them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from ..exceptions import InvalidMessage
from ..message.limits import measure

MAX_NAME_LENGTH: Final = 255
"""Characters in the name of a series: the width of its column."""
MAX_EXPECTED: Final = 2**31 - 1
"""Messages in a series: the largest value of the column."""
MAX_DELAY: Final = timedelta(days=36_500)
"""The longest delay: a hundred years, within the range of PostgreSQL's dates."""


@dataclass(frozen=True, slots=True)
class SeriesOptions:
    """The name of a series, and when it ends."""

    name: str
    expected: int | None = None
    timeout: float | None = None
    """Seconds; None: the setting SERIES_TIMEOUT, 0: no time-out."""
    on_timeout: str | None = None
    """`park` or `discard`; None: the setting SERIES_ON_TIMEOUT."""

    def check(self) -> None:
        """Raise `InvalidMessage` if an option is wrong."""
        check_name(self.name)
        _check_expected(self.expected)
        _check_timeout(self.timeout)
        if self.on_timeout not in {None, "park", "discard"}:
            raise InvalidMessage(
                f"on_timeout: {self.on_timeout!r} must be 'park' or 'discard'."
            )


@dataclass(frozen=True, slots=True)
class Delay:
    """When a delayed message is due: at a moment, or some time from now."""

    moment: datetime | None = None
    interval: timedelta | None = None
    """Counted from now by the database's clock."""

    @classmethod
    def until(cls, not_before: datetime | timedelta) -> Delay:
        """
        Check the moment, or the time from now.

        Raises:
            InvalidMessage: It has another type, no time zone, or is too far away.
        """
        if isinstance(not_before, timedelta):
            if abs(not_before) > MAX_DELAY:
                raise InvalidMessage(
                    f"not_before: {not_before} is more than {MAX_DELAY.days} days away."
                )
            return cls(interval=not_before)
        if not isinstance(not_before, datetime):
            raise InvalidMessage(
                "not_before: must be a datetime or a timedelta, not "
                f"{type(not_before).__name__}."
            )
        if not_before.utcoffset() is None:
            raise InvalidMessage(
                f"not_before: {not_before.isoformat()} has no time zone; use "
                "datetime.now(UTC) + ..., make_aware(), or a timedelta."
            )
        try:
            return cls(moment=not_before.astimezone(UTC))
        except OverflowError as error:
            raise InvalidMessage(
                f"not_before: {not_before.isoformat()} is not in the years 1 to 9999 in"
                " UTC."
            ) from error


def check_name(name: object) -> None:
    """Raise `InvalidMessage` if the value cannot be the name of a series."""
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
            f"timeout: {timeout} must be between 0 (no time-out) and "
            f"{MAX_DELAY.total_seconds():.0f} seconds."
        )
