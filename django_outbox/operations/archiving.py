"""
The leader maintains the archive: creates a partition for each day, drops old ones.

A receiver of `meter_read`, which only a leader sends: it runs on the thread for
receivers, next to the harvest. A function in the database does the work, since
the leader's role may neither create nor drop tables.
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

MAINTENANCE_INTERVAL: Final = 3600.0
"""Seconds between two runs; partitions are created two days ahead."""
_due: Final[dict[str, float]] = {}
"""When this process runs next for each database, by the monotonic clock."""


def connect() -> None:
    """Let the leader of this project maintain the archive."""
    meter_read.connect(tend_if_due, dispatch_uid="django_outbox.operations.archiving")


def tend_if_due(event: MeterRead, **_: Any) -> None:
    """Maintain the archive of the harvested outbox, if it has one and it is time."""
    now = time.monotonic()
    # Of several leaders one is enough.
    is_ours = settings.ARCHIVE and event.shard == 0
    if is_ours and now >= _due.get(event.database, 0.0):
        # Also after a failure: events come every few seconds, partitions last a day.
        _due[event.database] = now + MAINTENANCE_INTERVAL
        tend(event.database)


def tend(using: str = "") -> int:
    """
    Create the next days' partitions; return how many old ones were dropped.

    The new ones first, in a transaction of their own: a session that reads an old one
    keeps it from being dropped. Where none is dropped, old rows without a partition are
    deleted, for some seconds.
    """
    alias = outbox_database(using or settings.DATABASE)
    function = connections[alias].ops.quote_name(
        f"{ArchivedRecord._meta.db_table}_tend"
    )
    with connections[alias].cursor() as cursor:
        for retention in dict.fromkeys((0, settings.ARCHIVE_RETENTION)):
            cursor.execute(f"SELECT {function}(%s)", [retention])
        dropped: int = cursor.fetchone()[0]
    if dropped:
        logger.info(
            "Dropped %d days of the archive", dropped, extra={"action": "prune"}
        )
    return dropped
