"""How numbers, times and foreign text read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from django_outbox.wording import (
    count,
    duration,
    first_line,
    local_time,
    number_in,
    printable,
    rfc_3339,
)


@pytest.mark.parametrize(
    ("number", "is_capped", "expected"),
    [
        (0, False, "0 records"),
        (1, False, "1 record"),
        (2, False, "2 records"),
        (60_000, False, "60,000 records"),
        (100_000, True, "100,000+ records"),
        (1, True, "1+ records"),
    ],
)
def test_a_count_has_the_right_plural(
    number: int, is_capped: bool, expected: str
) -> None:
    assert count(number, "record", is_capped=is_capped) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.04, "0.0 s"),
        (3.84, "3.8 s"),
        (119.9, "119.9 s"),
        (120, "2 min"),
        (7_199, "120 min"),
        (7_200, "2 h"),
        (172_799, "48 h"),
        (172_800, "2 days"),
        (86_400 * 5_000, "5,000 days"),
    ],
)
def test_a_duration_has_one_unit(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected


@pytest.fixture
def _in_kolkata(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("_in_kolkata")
def test_a_time_is_local_and_has_its_offset() -> None:
    moment = datetime(2026, 11, 23, 20, 8, 9, 123_456, tzinfo=UTC)
    assert local_time(moment) == "2026-11-24T01:38:09+05:30"


@pytest.mark.usefixtures("_in_kolkata")
def test_a_time_without_a_zone_is_local_and_told_in_utc() -> None:
    moment = datetime(2026, 11, 24, 1, 38, 9)  # noqa: DTZ001 - as with USE_TZ off
    assert rfc_3339(moment) == "2026-11-23T20:08:09+00:00"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("order-17 Zoë 日本 😀", "order-17 Zoë 日本 😀"),
        ("a\nb\r\tc", r"a\nb\r\tc"),
        ("\x1b[2J\x07\x7f\x9b31m", r"\x1b[2J\x07\x7f\x9b31m"),
        ("\u202egnp.exe\u2028\u2066", r"\u202egnp.exe\u2028\u2066"),
        ("\ud800", r"\ud800"),
        (r"C:\new", r"C:\new"),
    ],
)
def test_what_steers_a_terminal_is_escaped(text: str, expected: str) -> None:
    assert printable(text) == expected
    assert printable(printable(text)) == expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("no such table\nLINE 1: SELECT"), "no such table"),
        (ValueError("\n  \n  late \r\nmore"), "late"),
        (ValueError(), "ValueError"),
        (KeyError(""), "''"),
        (TimeoutError(" \n"), "TimeoutError"),
    ],
)
def test_the_first_line_of_an_error_is_never_empty(
    error: Exception, expected: str
) -> None:
    assert first_line(error) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("007", 7),
        ("999", 999),
        ("1000", None),
        ("", None),
        ("-1", None),
        ("+1", None),
        (" 1", None),
        ("1_0", None),
        ("1.0", None),
        ("²", None),
        ("٣", None),
        ("9" * 5_000, None),
    ],
)
def test_a_number_is_read_from_few_digits_only(text: str, expected: int | None) -> None:
    assert number_in(text, 3) == expected
