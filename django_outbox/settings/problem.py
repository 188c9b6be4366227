"""What is wrong with a setting, and which check says so."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Rule(Enum):
    """Which rule a setting breaks; its value is the number of the check."""

    UNKNOWN = 1
    VALUE = 2
    TIMING = 3
    KAFKA_KEY = 4
    KAFKA_PROPERTY = 11
    KAFKA_SERVERS = 12
    TLS_VERIFICATION = 13
    CLEAR_TEXT = 14


class Problem(NamedTuple):
    """One broken rule, in words for the person who can fix it."""

    rule: Rule
    setting: str
    message: str
