"""
Which failure sets a record aside.

A poison record is one whose own content or destination is at fault, so that no retry
helps until somebody changes the record, the topic or a permission.
"""

from __future__ import annotations

from ..exceptions import DeliveryFailed, RecordPoisoned
from ..message.record import Record
from .settings import RelaySettings


def should_park(record: Record, error: DeliveryFailed, settings: RelaySettings) -> bool:
    """Whether this failure is the one after which a record is parked."""
    return (
        isinstance(error, RecordPoisoned)
        and error.is_certain
        and settings.retry.is_spent(record.attempts + 1)
        and settings.parks(record.topic)
    )
