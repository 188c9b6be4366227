"""The database of the outbox."""

from __future__ import annotations

from django.db import router

from . import OutboxRecord


def outbox_database(chosen: str | None) -> str:
    """Return the chosen alias, else the answer of the routers."""
    return chosen or router.db_for_write(OutboxRecord)
