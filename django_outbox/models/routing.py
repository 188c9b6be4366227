"""Which database the outbox is in."""

from __future__ import annotations

from django.db import router

from . import OutboxRecord


def outbox_database(chosen: str | None) -> str:
    """Return the alias that was chosen, else what the routers say."""
    return chosen or router.db_for_write(OutboxRecord)
