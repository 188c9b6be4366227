"""
Formats of numbers, times and untrusted text in logs, on terminals and in errors.

Of these, JSON output uses `rfc_3339` only.
"""

from __future__ import annotations

from datetime import UTC, datetime


def count(number: int, noun: str, *, is_capped: bool = False) -> str:
    """Format a number of things: `1 record`, `60,000 records`, `100,000+ records`."""
    plural = "" if number == 1 and not is_capped else "s"
    return f"{number:,}{'+' if is_capped else ''} {noun}{plural}"


def duration(seconds: float) -> str:
    """Format a duration or an age in seconds: `3.8 s`, `12 min`, `5 h`."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 7_200:
        return f"{seconds / 60:.0f} min"
    if seconds < 172_800:
        return f"{seconds / 3_600:.0f} h"
    return f"{seconds / 86_400:,.0f} days"


def local_time(moment: datetime) -> str:
    """Format a moment as RFC 3339 with the offset of the local time zone."""
    return moment.astimezone().isoformat(timespec="seconds")


def rfc_3339(moment: datetime) -> str:
    """
    Format a moment as RFC 3339 in UTC.

    One without a zone is local time, as Django reads it where USE_TZ is off.
    """
    return moment.astimezone(UTC).isoformat()


def number_in(text: str, max_digits: int) -> int | None:
    """Read a number from untrusted text; None if it is not digits, or too many."""
    # Other scripts have digits, too, and Python refuses to read thousands of them.
    is_number = text.isascii() and text.isdigit() and len(text) <= max_digits
    return int(text) if is_number else None


def first_line(error: object) -> str:
    """Return the first line of an error that has text, else the name of its type."""
    lines = map(str.strip, str(error).splitlines())
    return next(filter(None, lines), type(error).__name__)


def printable(text: str) -> str:
    """
    Escape characters that move the cursor, end a line or hide text.

    Untrusted text cannot forge a line of a log then. Letters of all scripts stay;
    backslashes, too, so that escaping twice changes nothing.
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in text
    )
