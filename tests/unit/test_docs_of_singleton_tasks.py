"""The how-to on singleton tasks shows the example's own code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "howto" / "singleton-tasks.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
QUOTES = re.findall(r"```python\n# (\S+\.py)\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(("file", "quote"), QUOTES, ids=[file for file, _ in QUOTES])
def test_what_is_quoted_is_in_the_example(file: str, quote: str) -> None:
    source = (ROOT / "example_project" / file).read_text()
    for paragraph in re.split(r"\n{2,}", quote.strip("\n")):
        assert paragraph in source


@pytest.mark.parametrize("block", BLOCKS)
def test_every_example_is_python(block: str) -> None:
    compile(block, "example", "exec")
