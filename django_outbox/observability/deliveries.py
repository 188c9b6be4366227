"""What is shown of records that Kafka has: how long they took, and spans."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from ..message.record import Record
from .message_times import MessageTimes
from .tracing import trace_batch

logger = logging.getLogger(__name__)


class Deliveries:
    """
    Called with the records of each settlement, on one thread.

    Args:
        is_traced: whether a batch gets a span, if one of its records has one.
    """

    def __init__(self, *, is_traced: bool) -> None:
        self.times = MessageTimes()
        """From the creation of a row to Kafka's acknowledgement, in seconds."""
        self._is_traced = is_traced

    def __call__(self, records: Sequence[Record]) -> None:
        # A record that only the ledger knows has no time, nor has an infinite one.
        if not records or not (created_at := int(records[0].created_at or 0)):
            return
        now = time.time()
        # The others were acknowledged with it.
        self.times.add(max(0.0, now - created_at / 1e6))
        if self._is_traced:
            try:
                trace_batch(records, begin=1000 * created_at, end=int(1e9 * now))
            except Exception:
                # The records go on, whatever the application's tracing does.
                logger.debug("Cannot trace a batch", exc_info=True)
