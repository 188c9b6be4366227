"""
The tables of the outbox.

`outbox_record.py`: messages that wait, were parked, or were sent. `staged_record.py`:
series and delayed messages. `pause.py`: what is not sent for now. `columns.py`: the
columns and constraints of messages. `processed_message.py`: processed keys and offsets
of consumers. `aging.py`: pruning of old rows. `missing_tables.py`: the error for tables
that `migrate` has not created. `arrays.py`: arrays of texts, without
`django.contrib.postgres`. `routing.py`: the database of the outbox.
"""

from __future__ import annotations

from .outbox_record import (
    ArchivedQuerySet,
    ArchivedRecord,
    OutboxQuerySet,
    OutboxRecord,
    ParkedQuerySet,
    ParkedRecord,
)
from .pause import Pause
from .processed_message import (
    ConsumerOffset,
    OffsetQuerySet,
    ProcessedMessage,
    ProcessedQuerySet,
)
from .staged_record import (
    Series,
    SeriesQuerySet,
    SeriesState,
    StagedQuerySet,
    StagedRecord,
)

__all__ = [
    "ArchivedQuerySet",
    "ArchivedRecord",
    "ConsumerOffset",
    "OffsetQuerySet",
    "OutboxQuerySet",
    "OutboxRecord",
    "ParkedQuerySet",
    "ParkedRecord",
    "Pause",
    "ProcessedMessage",
    "ProcessedQuerySet",
    "Series",
    "SeriesQuerySet",
    "SeriesState",
    "StagedQuerySet",
    "StagedRecord",
]
