"""
The leader tends the archive: a partition for each day, none that is too old.

A receiver of `meter_read`, which only a leader sends: it runs on the thread
for receivers, beside the harvest, once in a while. The database's function
does the work, since the leader's role may neither make nor drop tables.
"""

from __future__ import annotations

import logging
import time
from typing import Any, Final

from django.db import connections

from ..conf import settings
from ..events import MeterRead
from ..models import ArchivedRecord
from ..models.routing import outbox_database
from ..signals import meter_read

logger = logging.getLogger(__name__)

INTERVAL: Final = 3600.0
"""Seconds between two looks; partitions are made two days ahead."""

_due: Final[dict[str, float]] = {}
"""When this process looks again at each database, by the monotonic clock."""


def connect() -> None:
    """Let the leader of this project tend the archive."""
    meter_read.connect(tend_if_due, dispatch_uid="django_outbox.operations.archiving")


def tend_if_due(event: MeterRead, **_: Any) -> None:
    """Tend the archive of what is harvested, if there is one and it is time."""
    now = time.monotonic()
    if settings.ARCHIVE and now >= _due.get(event.database, 0.0):
        # Also when it fails: events come every few seconds, and days last.
        _due[event.database] = now + INTERVAL
        tend(event.database)


def tend(using: str = "") -> int:
    """Make the next days' partitions; return how many old days were dropped."""
    alias = outbox_database(using or settings.DATABASE)
    function = connections[alias].ops.quote_name(
        f"{ArchivedRecord._meta.db_table}_tend"
    )
    with connections[alias].cursor() as cursor:
        cursor.execute(f"SELECT {function}(%s)", [settings.ARCHIVE_RETENTION])
        dropped: int = cursor.fetchone()[0]
    if dropped:
        logger.info(
            "%d days of the archive dropped", dropped, extra={"action": "prune"}
        )
    return dropped
