"""
The leader prunes keys of processed messages by age (PROCESSED_RETENTION).

A receiver of `meter_read`, which only a leader sends: it runs on the thread for
receivers, next to the harvest, and deletes chunks for a moment each time.
"""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from typing import Any, Final

from django.db import OperationalError, connections, transaction

from ..conf import settings
from ..events import MeterRead
from ..exceptions import sqlstate_of
from ..idempotence.once import alias_for
from ..models import ProcessedMessage
from ..signals import meter_read

logger = logging.getLogger(__name__)

CHUNK: Final = 5_000
"""Keys of one transaction."""

MAX_PRUNE_TIME: Final = 0.5
"""Seconds of one event after which no further chunk begins, since other events wait."""

_IMPATIENT: Final = "SET LOCAL lock_timeout = '200ms'"
"""Before each chunk: all receivers of this process wait for it."""

_LOCK_NOT_AVAILABLE: Final = "55P03"
"""SQLSTATE of a statement that has waited for a lock for so long."""


def connect() -> None:
    """Let the leader of this project prune."""
    meter_read.connect(prune_harvested, dispatch_uid="django_outbox.operations.pruning")


def prune_harvested(event: MeterRead, **_: Any) -> None:
    """Prune the keys in the database of the harvested outbox, once for all shards."""
    if event.shard == 0:
        prune(event.database)


def prune(using: str = "") -> int:
    """Delete keys that are too old, for half a second; return how many."""
    retention: float = settings.PROCESSED_RETENTION
    if not retention:
        return 0
    alias = alias_for(using)
    rows = ProcessedMessage.objects.using(alias)
    chunks = rows.older_than(timedelta(seconds=retention)).prune(chunk=CHUNK)
    until, pruned, deleted = time.monotonic() + MAX_PRUNE_TIME, 0, CHUNK
    try:
        while deleted == CHUNK:
            with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
                cursor.execute(_IMPATIENT)
                deleted = next(chunks)
            pruned += deleted
            if time.monotonic() >= until:
                break
    except OperationalError as error:
        if sqlstate_of(error) != _LOCK_NOT_AVAILABLE:
            raise
        # The next reading comes soon.
        logger.debug("Could not prune processed keys: %s", error)
    if pruned:
        logger.debug("Pruned %d processed keys", pruned, extra={"action": "prune"})
    return pruned
