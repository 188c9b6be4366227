"""`doctor`: print each result, and a remedy for each failed check."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from .shared_options import Commands, add_command, say, settings_of


def add(commands: Commands) -> None:
    """Add the command."""
    add_command(commands, "doctor", execute, words="check what the pipeline needs")


def execute(chosen: Namespace, defaults: Mapping[str, Any]) -> int:
    """Return 0, or 1 if a check failed."""
    from ..diagnosis import examine

    is_good = True
    for result in examine(settings_of(chosen, defaults)):
        sign = "ok  " if result.is_good else "BAD "
        say(f"{sign} {result.name}: {result.detail}")
        if not result.is_good:
            is_good = False
            say(f"     {result.remedy}")
    return 0 if is_good else 1
