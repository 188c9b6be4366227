"""
The leader prunes keys of processed messages by age (PROCESSED_RETENTION).

A receiver of `meter_read`, which only a leader sends: it runs on the thread for
receivers, next to the harvest, and deletes one chunk each time.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any, Final

from ..conf import settings
from ..events import MeterRead
from ..idempotence.once import alias_for
from ..models import ProcessedMessage
from ..signals import meter_read

logger = logging.getLogger(__name__)

MAX_KEYS_PER_EVENT: Final = 5_000
"""Keys to delete per event: a fraction of a second, since other events wait."""


def connect() -> None:
    """Let the leader of this project prune."""
    meter_read.connect(prune_harvested, dispatch_uid="django_outbox.operations.pruning")


def prune_harvested(event: MeterRead, **_: Any) -> None:
    """Prune the keys in the database of the harvested outbox."""
    prune(event.database)


def prune(using: str = "") -> int:
    """Delete one chunk of the keys that are too old; return how many."""
    retention: float = settings.PROCESSED_RETENTION
    if not retention:
        return 0
    rows = ProcessedMessage.objects.using(alias_for(using))
    old = rows.older_than(timedelta(seconds=retention))
    pruned = next(old.prune(chunk=MAX_KEYS_PER_EVENT), 0)
    if pruned:
        logger.debug("Pruned %d processed keys", pruned, extra={"action": "prune"})
    return pruned
