"""A page of the docs as steps to follow: its commands and blocks of code, in order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

BLOCK: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What a reader types."""

    text: str
    shown: list[str]
    """The lines that the page shows below it; an ellipsis stands for anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Addition:
    """Code that a reader appends to a file."""

    path: str
    code: str


def steps(page: Path) -> Iterator[Command | Addition]:
    """Return everything in blocks; one that cannot be followed is an error."""
    for language, block in BLOCK.findall(page.read_text("utf-8")):
        if language == "console":
            yield from _commands(block)
        elif language == "python" and (named := re.match(r"# (\S+\.py)\n", block)):
            yield Addition(path=named[1], code=block[named.end() :])
        else:
            raise AssertionError(
                f"{page.name}: a block is neither commands nor code with the name of"
                f" its file in the first line:\n{block}"
            )


def commands_of(text: str) -> list[Command]:
    """Return the commands in the blocks of a part of a page."""
    return [
        command
        for language, block in BLOCK.findall(text)
        if language == "console"
        for command in _commands(block)
    ]


def matches(shown: str, line: str) -> bool:
    """Whether a line of output is the one that the page shows."""
    pattern = ".*".join(map(re.escape, shown.split("…")))
    return re.fullmatch(pattern, line) is not None


def install_commands(text: str) -> Iterator[str]:
    """Return each `pip install …` of a page, in a block or within a sentence."""
    for line in text.splitlines():
        if command := re.match(r"\$ (pip install .+)$", line):
            yield command[1]
        else:
            yield from re.findall(r"`(pip install [^`]+)`", line)


def _commands(block: str) -> Iterator[Command]:
    assert block.startswith("$ "), f"a block of commands begins with output:\n{block}"
    # A line that follows a command and is none is output, or the rest of a string.
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        text, *shown = part.splitlines()
        yield Command(text=text, shown=shown)
