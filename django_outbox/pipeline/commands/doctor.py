"""`doctor`: print each finding, and a remedy for those that are bad."""

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
    for finding in examine(settings_of(chosen, defaults)):
        sign = "ok  " if finding.is_good else "BAD "
        say(f"{sign} {finding.name}: {finding.detail}")
        if not finding.is_good:
            is_good = False
            say(f"     {finding.remedy}")
    return 0 if is_good else 1
