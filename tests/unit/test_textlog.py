"""Tracebacks in the log for people."""

from __future__ import annotations

import logging

import pytest

from django_outbox.observability.textlog import MAX_TRACEBACK_LENGTH, TextFormatter


def formatted(text: str) -> str:
    with pytest.raises(LookupError) as raised:
        fail(text)
    record = logging.LogRecord(
        *("django_outbox", logging.WARNING, __file__, 1, "failed", ()),
        exc_info=(raised.type, raised.value, raised.tb),
    )
    return TextFormatter().format(record)


def fail(text: str) -> None:
    raise LookupError(text)


def test_a_traceback_is_indented_below_its_line() -> None:
    first, *others = formatted("no account").splitlines()
    assert first.endswith(" WARNING failed")
    assert all(line.startswith("    ") for line in others)
    assert others[-1] == "    LookupError: no account"


def test_the_text_of_an_exception_forges_no_line_and_no_colour() -> None:
    lines = formatted("x\nINFO leader_acquired\r\x1b[31m\x85y").split("\n")
    assert lines[-1] == "    INFO leader_acquired\\r\\x1b[31m\\x85y"


def test_a_long_text_does_not_fill_the_log() -> None:
    text = formatted("x" * 20_000_000)
    assert len(text) < MAX_TRACEBACK_LENGTH + 100
    assert "raise LookupError(text)" in text
    assert "[…]" in text
