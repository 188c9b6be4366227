"""A problem of a setting, and the rule that it breaks."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Rule(Enum):
    """The rule that a setting breaks; its value is the number of the check."""

    UNKNOWN = 1
    VALUE = 2
    TIMING = 3
    KAFKA_KEY = 4
    KAFKA_PROPERTY = 11
    KAFKA_SERVERS = 12
    TLS_VERIFICATION = 13
    CLEAR_TEXT = 14


class Problem(NamedTuple):
    """One broken rule, with a message that says how to correct it."""

    rule: Rule
    setting: str
    message: str
