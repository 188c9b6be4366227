"""
The leader prunes keys of processed messages by age (PROCESSED_RETENTION).

A receiver of `meter_read`, which only a leader sends: it runs on the thread
for receivers, beside the harvest, and takes a little each time.
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

CHUNK: Final = 5_000
"""Keys that one reading prunes: a fraction of a second, since events wait."""


def connect() -> None:
    """Let the leader of this project prune."""
    meter_read.connect(prune_harvested, dispatch_uid="django_outbox.operations.pruning")


def prune_harvested(event: MeterRead, **_: Any) -> None:
    """Prune beside the outbox that is harvested."""
    prune(event.database)


def prune(using: str = "") -> int:
    """Delete some of the keys that are too old; return how many."""
    retention: float = settings.PROCESSED_RETENTION
    if not retention:
        return 0
    rows = ProcessedMessage.objects.using(alias_for(using))
    old = rows.older_than(timedelta(seconds=retention))
    pruned = next(old.prune(chunk=CHUNK), 0)
    if pruned:
        logger.debug("%d processed keys pruned", pruned, extra={"action": "prune"})
    return pruned
