"""
Traces that pass through the outbox, with OpenTelemetry's API.

A message carries the context of the span in which it was stashed in its headers, in
the format of the application's propagator: W3C's `traceparent` by default. A consumer
continues that trace.

The API is never the first to be imported here: until the application has imported it,
no span can be active. So an application without it pays for one look-up in a dict.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeAlias

from ..message.incoming import ConsumedMessage
from ..message.record import Record

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span

_API: Final = "opentelemetry.trace"

_SCOPE: Final = "django_outbox"
"""The name of the instrumentation in each span."""

MAX_LINKS: Final = 64
"""Most records of a batch to whose spans its own span is linked."""

_Attributes: TypeAlias = dict[str, str | int | float | bool]


def trace_headers() -> list[tuple[str, str]]:
    """Return the headers that carry the active span's context; none without a span."""
    if (api := sys.modules.get(_API)) is None:
        return []
    # While another thread imports it, the module may be empty.
    current_span = getattr(api, "get_current_span", None)
    if current_span is None or not current_span().get_span_context().is_valid:
        return []
    from opentelemetry import propagate

    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return [*carrier.items()]


def trace_batch(records: Sequence[Record], *, begin: int, end: int) -> None:
    """
    Make the span of a batch, from its first row to the acknowledgement, in ns.

    It is linked to the spans that stashed its records; without any there is none.
    """
    if _API not in sys.modules:
        return
    from opentelemetry import trace
    from opentelemetry.context import Context

    traced = [record for record in records if record.header_keys][:MAX_LINKS]
    links = [link for record in traced if (link := _stashed_in(record))]
    if not links:
        return
    topics = {record.topic for record in records}
    where = f" {records[0].topic}" if len(topics) == 1 else ""
    span = trace.get_tracer(_SCOPE).start_span(
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


def _stashed_in(record: Record) -> Link | None:
    """Return a link to the span that stashed a record, if that is sampled."""
    from opentelemetry import propagate, trace

    pairs = zip(record.header_keys, record.header_values, strict=False)
    carrier = {name: text for name, text in pairs if text is not None}
    found = trace.get_current_span(propagate.extract(carrier)).get_span_context()
    return trace.Link(found) if found.is_valid and found.trace_flags.sampled else None


class ProcessSpan:
    """
    The span of one attempt to process a message; active while the block runs.

    It is a child of the active span, with a link to the span in which the message was
    stashed; without an active span, a child of the latter.

    Args:
        message: None: there is no span.
        consumer: whose effects the message has.
        is_group: whether that is a consumer group of Kafka.
    """

    def __init__(
        self, message: ConsumedMessage | None, *, consumer: str, is_group: bool = False
    ) -> None:
        self._message = message
        self._consumer = consumer
        self._is_group = is_group
        self._block: AbstractContextManager[Span] | None = None
        self._span: Span | None = None

    def __enter__(self) -> Self:
        if self._message is not None and _API in sys.modules:
            self._block = self._start(self._message)
            self._span = self._block.__enter__()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        block, self._block, self._span = self._block, None, None
        if block is not None:
            block.__exit__(exc_type, exc, traceback)

    def ran(self, *, is_first: bool) -> None:
        """Note whether the handler ran, or the message was a repeat."""
        if self._span is not None and not is_first:
            self._span.set_attribute(f"{_SCOPE}.repeat", True)  # noqa: FBT003

    def _start(self, message: ConsumedMessage) -> AbstractContextManager[Span]:
        from opentelemetry import trace

        parent, links = _origin(message)
        attributes = _attributes(message, self._consumer)
        if self._is_group:
            attributes["messaging.consumer.group.name"] = self._consumer
        return trace.get_tracer(_SCOPE).start_as_current_span(
            f"process {message.topic}",
            context=parent,
            kind=trace.SpanKind.CONSUMER,
            attributes=attributes,
            links=links,
        )


def _origin(message: ConsumedMessage) -> tuple[Context | None, list[Link]]:
    """Return the parent's context, None for the active one, and the links."""
    from opentelemetry import propagate, trace

    carrier = {
        name: value.decode("ascii", "replace")
        for name, value in message.headers
        if value is not None
    }
    active = trace.get_current_span().get_span_context()
    context = propagate.extract(carrier)
    stashed = trace.get_current_span(context).get_span_context()
    if not active.is_valid:
        return context, []
    # Without a context in the headers, the active span is found again.
    is_other = stashed.is_valid and stashed != active
    return None, [trace.Link(stashed)] if is_other else []


def _attributes(message: ConsumedMessage, consumer: str) -> _Attributes:
    """Describe a message without its key and its value, as OpenTelemetry names it."""
    attributes: _Attributes = {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": message.topic,
        "messaging.destination.partition.id": str(message.partition),
        "messaging.kafka.offset": message.offset,
        f"{_SCOPE}.consumer": consumer,
    }
    if message.message_id is not None:
        attributes["messaging.message.id"] = message.message_id
    if message.source is not None:
        attributes[f"{_SCOPE}.source"] = message.source
    if (created_at := message.created_at) is not None:
        since = (datetime.now(UTC) - created_at).total_seconds()
        attributes[f"{_SCOPE}.seconds_since_stash"] = since
        if message.timestamp is not None:
            waited = (message.timestamp - created_at).total_seconds()
            attributes[f"{_SCOPE}.seconds_in_outbox"] = waited
    return attributes
