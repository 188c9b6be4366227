"""The how-to on consuming shows the example's own code, and names that exist."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from pathlib import Path

import pytest

import django_outbox
from django_outbox import ConsumedMessage
from django_outbox.consuming.dead_letters import dead_letters

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/howto/consuming.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_handler_is_the_examples() -> None:
    (quote,) = re.findall(
        r"```python\n# billing/consumers.py\n(.*?)```", PAGE, re.DOTALL
    )
    source = (ROOT / "example_project/billing/consumers.py").read_text("utf-8")
    for paragraph in re.split(r"\n{2,}", quote.strip("\n")):
        assert paragraph in source


@pytest.mark.parametrize("block", BLOCKS)
def test_every_example_is_python_and_imports_what_exists(block: str) -> None:
    for node in ast.walk(ast.parse(block)):
        if isinstance(node, ast.ImportFrom) and node.module == "django_outbox":
            assert {name.name for name in node.names} <= set(django_outbox.__all__)


def test_every_part_of_a_message_is_named() -> None:
    (sentence,) = re.findall(r"^A message has (.*?)\.$", PAGE, re.MULTILINE | re.DOTALL)
    shown = set(re.findall(r"`(\w+)", sentence))
    known = {field.name for field in fields(ConsumedMessage)}
    assert known <= shown
    assert all(hasattr(ConsumedMessage, name) for name in shown)


def test_every_header_of_a_dead_letter_is_named() -> None:
    message = ConsumedMessage(
        topic="orders", key=b"k" * 1000, value=b"v", headers=(("a", b"1"),)
    )
    letters = dead_letters(
        message, topic="orders.dlt", group="g", error=LookupError(), attempts=1
    )
    names = {name for letter in letters for name, _ in letter.headers}
    for name in names - {"a"}:
        assert f"`{name.removeprefix('outbox-dlt')}`" in PAGE or f"`{name}`" in PAGE
