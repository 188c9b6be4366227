"""The lines of `manage.py outbox top`, for a file, a pipe or another program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..wording import count, duration
from .answer import Answer


class Lines:
    """Shows readings as lines, or as JSON, one a line."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def __enter__(self) -> Callable[[dict[str, Any]], None]:
        return lambda reading: self._answer.stream(reading, _line(reading))

    def __exit__(self, *exc: object) -> None:
        """Do nothing: each line is complete."""


def _line(reading: dict[str, Any]) -> str:
    """Describe a reading in one line."""
    backlog, rates = reading["backlog"], reading["rates"]
    records = count(backlog["records"], "record", is_capped=backlog["is_capped"])
    speed = f"{rates['sent']:,.0f}/s" if rates else "-"
    blocked = reading["blocked"]
    stuck = count(len(blocked["rows"]), "record", is_capped=blocked["is_capped"])
    return (
        f"leader {leader_of(reading)}   sent {speed}   waiting {records}, "
        f"oldest {duration(backlog['oldest_age'])}   blocked {stuck}"
        f"{'   paused ' if reading['paused'] else ''}{paused_of(reading)}"
    )


def paused_of(reading: dict[str, Any]) -> str:
    """Name what is paused."""
    return ", ".join(row["what"] for row in reading["paused"])


def leader_of(reading: dict[str, Any]) -> str:
    """Return who leads, or why that is not known."""
    state = reading["leader"]
    return state["leader"] or f"unknown ({state['reason']})"
