"""The question before something is dropped."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from django.core.management.base import CommandError

from ..wording import printable


def confirm(question: str, *, details: Iterable[str] = (), is_confirmed: bool) -> None:
    """
    Ask on the terminal whether to go on; `--yes` has answered already.

    The question goes to standard error, since standard output may be a document.

    Args:
        details: lines above the question.
        is_confirmed: `--yes` was said.

    Raises:
        CommandError: the answer is no, or there is nobody to ask.
    """
    if is_confirmed:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise CommandError(f"{question} Nobody to ask here: say --yes.")
    for line in details:
        sys.stderr.write(f"{printable(line)}\n")
    sys.stderr.write(f"{question} Type yes to go on: ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() != "yes":
        raise CommandError("Nothing was changed.")
