"""The pages of settings and writing say what the code does."""

from __future__ import annotations

import ast
import re
from dataclasses import MISSING, fields
from pathlib import Path

from django_outbox.settings import message_sizes
from django_outbox.settings.options import OutboxSettings
from django_outbox.settings.reserved_properties import RESERVED_PROPERTIES

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_every_setting_is_there_with_its_default() -> None:
    page = (DOCS / "reference/settings.md").read_text("utf-8")
    rows = re.findall(r"^\| `([A-Z_]+)` \| `([^`]*)` \|", page, re.MULTILINE)
    shown = {name: ast.literal_eval(default) for name, default in rows}
    assert shown == {
        field.name: {} if field.default is MISSING else field.default
        for field in fields(OutboxSettings)
    }
    assert len(rows) == len(shown)


def test_a_stranger_reads_ten_settings_first() -> None:
    page = (DOCS / "reference/settings.md").read_text("utf-8")
    first = page.partition("## Needed\n")[2].partition("\n## Expert\n")[0]
    assert len(re.findall(r"^\| `[A-Z_]+` \|", first, re.MULTILINE)) == 10


def test_every_owned_kafka_property_is_there() -> None:
    page = (DOCS / "reference/checks.md").read_text("utf-8")
    section = page.partition("## django_outbox.E004")[2].partition("\n## ")[0]
    table = re.findall(r"^\| (`[^|]+) \|", section, re.MULTILINE)
    shown = {name for cell in table for name in re.findall(r"`([a-z.]+)`", cell)}
    assert shown == set(RESERVED_PROPERTIES)


def test_the_limits_are_those_of_the_code() -> None:
    page = (DOCS / "concepts/writing.md").read_text("utf-8")
    assert f"text, {message_sizes.MAX_KEY_LENGTH} characters" in page
    kibibytes = message_sizes.MAX_HEADERS_BYTES // 1024
    assert f"| {message_sizes.MAX_HEADERS}; {kibibytes} KiB in all" in page
