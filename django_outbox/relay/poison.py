"""
Which failure sets a record aside.

A poison record is one whose own content or destination is at fault, so that no retry
helps until somebody changes the record, the topic or a permission.
"""

from __future__ import annotations

from ..exceptions import DeliveryFailed, RecordPoisoned
from ..message.record import Record
from ..message.retry import RetryPolicy


def should_park(record: Record, error: DeliveryFailed, retry: RetryPolicy) -> bool:
    """Whether this failure is the one after which a record is parked."""
    return (
        isinstance(error, RecordPoisoned)
        and error.is_certain
        and retry.is_spent(record.attempts + 1)
    )
