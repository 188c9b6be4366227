"""What a caller may ask a message to wait for, and what is refused."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from django_outbox import InvalidMessage
from django_outbox.stashing.schedule import ScheduleOptions

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def terms(
    series: Any = None,
    expected: Any = None,
    timeout: Any = None,
    not_before: Any = None,
    *,
    ordered: bool = False,
) -> ScheduleOptions | None:
    return ScheduleOptions.of(series, expected, timeout, not_before, ordered=ordered)


def test_a_message_that_waits_for_nothing_has_no_terms() -> None:
    assert terms() is None
    assert terms(ordered=True) is None


def test_a_series_can_have_an_end() -> None:
    found = terms("order-17", 3, 60)
    assert found == ScheduleOptions("order-17", 3, 60, None, None)


def test_a_moment_and_a_delay_are_told_apart() -> None:
    assert terms(not_before=NOON) == ScheduleOptions(None, None, None, NOON, None)
    delay = timedelta(minutes=5)
    assert terms(not_before=delay) == ScheduleOptions(None, None, None, None, delay)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"series": 17}, "series: must be str, not int; give it a name"),
        ({"series": ""}, "series: 0 characters; a name has 1 to 255"),
        ({"series": "x" * 256}, "series: 256 characters"),
        ({"series": "a\0b"}, "series: holds a NUL"),
        ({"series": "s", "expected": "3"}, "expected: must be int, not str"),
        ({"series": "s", "expected": True}, "expected: must be int, not bool"),
        ({"series": "s", "expected": 0}, "expected: 0 must be between 1 and"),
        ({"series": "s", "expected": 2**31}, "expected: 2147483648 must be between"),
        ({"series": "s", "timeout": "1"}, "timeout: must be seconds, not str"),
        ({"series": "s", "timeout": -1}, "timeout: -1 must be between 0"),
        ({"series": "s", "timeout": float("nan")}, "timeout: nan must be between 0"),
        ({"series": "s", "not_before": NOON}, r"exclude each other.*Leave one out"),
        ({"expected": 3}, "expected: 3 means nothing without series="),
        ({"timeout": 3}, "timeout: 3 means nothing without series="),
        ({"not_before": NOON, "expected": 3}, "expected: 3 means nothing without"),
        (
            {"not_before": datetime(2026, 1, 2, 12)},  # noqa: DTZ001  # the mistake
            "2026-01-02T12:00:00 has no time zone; use django.utils.timezone.now",
        ),
        ({"not_before": date(2026, 1, 2)}, "must be a datetime or a timedelta, not"),
        ({"not_before": 60}, "must be a datetime or a timedelta, not int"),
        ({"not_before": timedelta.max}, "is more than 36500 days away"),
        ({"series": "s", "ordered": True}, r"ordered: .*release_series\(..., ordered"),
        ({"not_before": NOON, "ordered": True}, "ordered: a staged message gets its"),
    ],
)
def test_a_mistake_is_named_with_what_to_do(
    arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidMessage, match=message):
        terms(**arguments)
