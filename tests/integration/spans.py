"""Spans in memory, for tests of tracing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext
from opentelemetry.util._once import Once


class Spans:
    """What was traced; and a tracer of the application."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        trace.set_tracer_provider(provider)
        self.tracer = trace.get_tracer("application")

    @contextmanager
    def span(self, name: str) -> Iterator[SpanContext]:
        with self.tracer.start_as_current_span(name) as span:
            yield span.get_span_context()

    def all(self) -> list[ReadableSpan]:
        """Return those that have ended, in the order of their ends."""
        return list(self._exporter.get_finished_spans())

    def processed(self) -> list[ReadableSpan]:
        """Return those of django-outbox."""
        return [span for span in self.all() if span.name.startswith("process ")]


def allow_another_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the test set the tracer provider, which a process does once."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", Once())


def header_of(context: SpanContext) -> str:
    """Write a span's context as W3C does."""
    flags = int(context.trace_flags)
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{flags:02x}"


def context_of(span: ReadableSpan) -> SpanContext:
    """Return the context of a span that has one, as all do."""
    context = span.get_span_context()
    assert context is not None
    return context
