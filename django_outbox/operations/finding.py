"""A finding of the doctor: what was seen, what it can cost, and the cure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class Level(Enum):
    """How bad a finding is."""

    ERROR = "error"
    """Messages can be lost, sent twice or held up for good."""
    WARNING = "warning"
    """The outbox gets slow or stands still, or something was not examined."""


class Kind(NamedTuple):
    """One thing that the doctor looks for."""

    name: str
    """For people and machines; names a row of the page of findings."""
    level: Level
    risk: str
    """One sentence: what can be lost, or what breaks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that the doctor has found."""

    kind: Kind
    subject: str
    """Where: `topic orders`, `table outbox`, `setting NOTIFY`."""
    seen: str
    """The value that was read, for people: `1 replica, 3 needed`."""
    cure: str
    """A command, a statement or a setting."""
