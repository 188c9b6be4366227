"""What is shown of records that Kafka has: how long they took, and spans."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ..message.record import Record
from .message_times import MessageTimes
from .tracing import API, SCOPE

if TYPE_CHECKING:
    from opentelemetry.trace import Link

logger = logging.getLogger(__name__)

LINKS: Final = 64
"""Most records of a batch to whose spans its own span is linked."""


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
        if self._is_traced and API in sys.modules:
            try:
                _trace(records, begin=1000 * created_at, end=int(1e9 * now))
            except Exception:
                # The records go on, whatever the application's tracing does.
                logger.debug("Cannot trace a batch", exc_info=True)


def _trace(records: Sequence[Record], *, begin: int, end: int) -> None:
    """
    Make the span of a batch, from its first row to the acknowledgement, in ns.

    It is linked to the spans that stashed its records; without any there is none.
    """
    from opentelemetry import trace
    from opentelemetry.context import Context

    traced = [record for record in records if record.header_keys][:LINKS]
    links = [link for record in traced if (link := _origin(record))]
    if not links:
        return
    topics = {record.topic for record in records}
    where = f" {records[0].topic}" if len(topics) == 1 else ""
    span = trace.get_tracer(SCOPE).start_span(
        f"send{where}",
        context=Context(),
        kind=trace.SpanKind.PRODUCER,
        attributes={
            "messaging.system": "kafka",
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
            "messaging.batch.message_count": len(records),
        },
        links=links,
        start_time=min(begin, end),
    )
    span.end(end)


def _origin(record: Record) -> Link | None:
    """Return a link to the span that stashed a record, if that is sampled."""
    from opentelemetry import propagate, trace

    pairs = zip(record.header_keys, record.header_values, strict=False)
    carrier = {name: text for name, text in pairs if text is not None}
    found = trace.get_current_span(propagate.extract(carrier)).get_span_context()
    return trace.Link(found) if found.is_valid and found.trace_flags.sampled else None
