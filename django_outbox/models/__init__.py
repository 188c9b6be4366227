"""
The tables of the outbox, each concern in a module of its own.

`outbox.py`: what waits, what was set aside, and what was sent.
"""

from __future__ import annotations

from .outbox import (
    ArchivedQuerySet,
    ArchivedRecord,
    OutboxQuerySet,
    OutboxRecord,
    ParkedQuerySet,
    ParkedRecord,
)

__all__ = [
    "ArchivedQuerySet",
    "ArchivedRecord",
    "OutboxQuerySet",
    "OutboxRecord",
    "ParkedQuerySet",
    "ParkedRecord",
]
