"""What a caller may ask of a series and of a delayed message, and what is refused."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest

from django_outbox import InvalidMessage
from django_outbox.stashing.schedule import Delay, SeriesOptions

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def test_a_series_needs_a_name_and_nothing_else() -> None:
    SeriesOptions("order-17").check()
    SeriesOptions("order-17", 3, 0.5, "discard").check()


def test_a_moment_and_an_interval_are_told_apart() -> None:
    assert Delay.until(NOON) == Delay(moment=NOON, interval=None)
    delay = timedelta(minutes=5)
    assert Delay.until(delay) == Delay(moment=None, interval=delay)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": 17}, "series: must be str, not int; give it a name"),
        ({"name": ""}, "series: 0 characters; a name has 1 to 255"),
        ({"name": "x" * 256}, "series: 256 characters"),
        ({"name": "a\0b"}, "series: contains a NUL"),
        ({"expected": "3"}, "expected: must be int, not str"),
        ({"expected": True}, "expected: must be int, not bool"),
        ({"expected": 0}, "expected: 0 must be between 1 and"),
        ({"expected": 2**31}, "expected: 2147483648 must be between"),
        ({"timeout": "1"}, "timeout: must be seconds, not str"),
        ({"timeout": -1}, "timeout: -1 must be between 0"),
        ({"timeout": float("nan")}, "timeout: nan must be between 0"),
        ({"on_timeout": "drop"}, "'drop' must be 'park' or 'discard'"),
    ],
)
def test_a_wrong_option_of_a_series_is_named(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidMessage, match=message):
        SeriesOptions(**({"name": "s"} | options)).check()


@pytest.mark.parametrize(
    ("not_before", "message"),
    [
        (
            datetime(2026, 1, 2, 12),  # noqa: DTZ001  # the mistake
            "2026-01-02T12:00:00 has no time zone; use datetime.now",
        ),
        (date(2026, 1, 2), "must be a datetime or a timedelta, not date"),
        (60, "must be a datetime or a timedelta, not int"),
        (timedelta.max, "is more than 36500 days away"),
        (
            datetime.max.replace(tzinfo=timezone(-timedelta(hours=5))),
            "is not in the years 1 to 9999 in UTC",
        ),
    ],
)
def test_a_wrong_date_is_named(not_before: Any, message: str) -> None:
    with pytest.raises(InvalidMessage, match=message):
        Delay.until(not_before)
