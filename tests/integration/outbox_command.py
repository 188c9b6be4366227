"""Calls `manage.py outbox` in this process."""

from __future__ import annotations

from io import StringIO

from django.core.management import call_command


def run(*arguments: str) -> str:
    """Run the command and return what it prints."""
    out = StringIO()
    call_command("outbox", *arguments, stdout=out)
    return out.getvalue()
