"""The lists of pinned Java archives, as values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import PurePosixPath

_LINE = re.compile(
    r"(?P<group>[\w.-]+):(?P<artifact>[\w.-]+):(?P<version>[\w.-]+)"
    r" (?P<sha256>[0-9a-f]{64})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinate:
    """One archive: its Maven coordinates and its checksum."""

    group: str
    artifact: str
    version: str
    sha256: str
    """SHA-256 of the file, in lower-case hexadecimal."""

    @property
    def path(self) -> PurePosixPath:
        """Path of the archive below a cache folder."""
        return PurePosixPath(self.group, f"{self.artifact}-{self.version}.jar")

    def __str__(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"


def parse(text: str) -> list[Coordinate]:
    """
    Parse a list: a coordinate and its sha256 on each line; `#` starts a comment.

    Raises:
        ValueError: names the first invalid line.
    """
    coordinates = []
    for line in map(str.strip, text.splitlines()):
        if not line or line.startswith("#"):
            continue
        if not (match := _LINE.fullmatch(line)):
            raise ValueError(f"Expected a coordinate and its sha256: {line!r}")
        coordinates.append(Coordinate(**match.groupdict()))
    return coordinates


def read_list(name: str) -> list[Coordinate]:
    """Return a list of this package by name, such as `kafka`."""
    return parse(files(__package__).joinpath(f"{name}.txt").read_text("utf-8"))
