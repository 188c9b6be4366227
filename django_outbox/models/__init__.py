"""
The tables of the outbox, each concern in a module of its own.

`outbox.py`: what waits, what was set aside, and what was sent. `staged.py`:
what is not to be sent yet. `columns.py`: what a message has in all of them.
`processed.py`: what consumers have done. `pruning.py`: how rows grow old.
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
    "ProcessedMessage",
    "ProcessedQuerySet",
    "Series",
    "SeriesQuerySet",
    "SeriesState",
    "StagedQuerySet",
    "StagedRecord",
]
