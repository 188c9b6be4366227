"""Ages and moments in the arguments of commands."""

from __future__ import annotations

from argparse import ArgumentTypeError
from datetime import UTC, datetime, timedelta

import pytest

from django_outbox.management.times import age, past_moment


def test_an_age_has_a_unit() -> None:
    assert age("90m") == timedelta(minutes=90)
    assert age("2d") == timedelta(days=2)


@pytest.mark.parametrize("text", ["90", "m", "1w", "-2d", "1.5h", "٣d", "1234567s"])
def test_what_is_no_age_is_named(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="must look like 90d, 12h, 30m or 45s"):
        age(text)


def test_a_moment_is_an_age_before_now() -> None:
    before = datetime.now(UTC)
    moment = past_moment("90m")
    assert before <= moment + timedelta(minutes=90) <= datetime.now(UTC)


@pytest.mark.parametrize(
    "text", ["2026-01-31T12:00:00Z", "2026-01-31 13:00+01:00", "20260131T120000+0000"]
)
def test_a_moment_is_a_date_and_time_with_a_zone(text: str) -> None:
    assert past_moment(text) == datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("2026-01-31T12:00:00", "has no time zone: add Z for UTC"),
        ("2026-01-31", "has no time zone"),
        ("2999-01-01T00:00:00Z", "is in the future; it is 20"),
        ("yesterday", "must look like 2026-01-31T12:00:00Z, or like 90m"),
        ("1w", "must look like 90d"),
        ("999999d", "is too long ago"),
        ("", "must look like 2026-01-31"),
    ],
)
def test_what_is_no_moment_of_the_past_is_named(text: str, error: str) -> None:
    with pytest.raises(ArgumentTypeError, match=error):
        past_moment(text)
