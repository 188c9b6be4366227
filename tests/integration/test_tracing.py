"""A trace goes into the headers of a message, and consumers continue it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connections, transaction
from opentelemetry import baggage, context
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext, SpanKind, StatusCode
from pytest_django import Settings

from django_outbox import (
    ConsumedMessage,
    Message,
    astash,
    once,
    open_series,
    stash,
    stash_delayed,
    stash_many,
)
from django_outbox.consuming.handlers import Subscription
from django_outbox.consuming.output import Output
from django_outbox.harvester.harvester import Harvester
from django_outbox.models import OutboxRecord, StagedRecord
from django_outbox.settings.message_sizes import MAX_HEADERS
from django_outbox.settings.options import OutboxSettings
from django_outbox.stashing.writing import MIN_COPY_ROWS
from tests.testapp.models import Effect

from ..services import Topics
from ..waiting import eventually
from .harvesting import fast_options
from .spans import Spans, allow_another_provider, context_of, header_of
from .test_consumer_effects import effects_of

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Spans:
    allow_another_provider(monkeypatch)
    return Spans()


def switch_off(settings: Settings) -> None:
    settings.DJANGO_OUTBOX = {**settings.DJANGO_OUTBOX, "TRACING": False}


def headers(model: Any = OutboxRecord) -> list[dict[str, str]]:
    rows = model.objects.order_by("pk")
    names = ("kafka_header_keys", "kafka_header_values")
    return [dict(zip(*row, strict=True)) for row in rows.values_list(*names)]


def write(**more: Any) -> None:
    with transaction.atomic():
        stash("orders", key="k", value="v", **more)


def message_of(origin: SpanContext | None, offset: int = 0) -> ConsumedMessage:
    created_at = datetime.now(UTC) - timedelta(seconds=30)
    micros = int(created_at.timestamp() * 1_000_000)
    found = [
        ("outbox-message-id", f"id-{offset}"),
        ("outbox-source", "shop"),
        ("outbox-created-at", str(micros)),
    ]
    if origin is not None:
        found.insert(0, ("traceparent", header_of(origin)))
    return ConsumedMessage(
        topic="orders",
        partition=3,
        offset=offset,
        key=b"secret-key",
        value=b"secret-value",
        headers=tuple((name, text.encode()) for name, text in found),
        timestamp=created_at + timedelta(seconds=10),
    )


class TestStashing:
    def test_the_active_span_is_in_the_headers(self, spans: Spans) -> None:
        with spans.span("order") as order:
            write(headers={"kind": "test"})
        assert headers() == [{"kind": "test", "traceparent": header_of(order)}]

    def test_without_a_span_there_is_no_header(self, spans: Spans) -> None:
        write()
        assert headers() == [{}]

    def test_it_can_be_switched_off(self, spans: Spans, settings: Settings) -> None:
        switch_off(settings)
        with spans.span("order"):
            write()
        assert headers() == [{}]

    def test_a_header_of_the_users_own_stays_alone(self, spans: Spans) -> None:
        own = {"traceparent": "00-" + "1" * 32 + "-" + "2" * 16 + "-01"}
        with spans.span("order"):
            write(headers=own)
        assert headers() == [own]

    def test_a_message_with_no_room_goes_without(self, spans: Spans) -> None:
        own = {f"name-{number}": "v" for number in range(MAX_HEADERS)}
        with spans.span("order"):
            write(headers=own)
        assert headers() == [own]

    @pytest.mark.parametrize("count", [2, MIN_COPY_ROWS])
    def test_many_messages_have_it_each(self, spans: Spans, count: int) -> None:
        with spans.span("order") as order, transaction.atomic():
            stash_many(Message("orders", key=str(n), value=n) for n in range(count))
        assert headers() == [{"traceparent": header_of(order)}] * count

    def test_messages_that_wait_have_it_too(self, spans: Spans) -> None:
        with spans.span("order") as order, transaction.atomic():
            delay = timedelta(hours=1)
            stash_delayed("orders", key="k", value="v", not_before=delay)
            with open_series("orders of today") as series:
                series.stash("orders", key="k", value="v")
        assert headers(StagedRecord) == [{"traceparent": header_of(order)}] * 2

    def test_async_code_has_the_span_of_its_task(self, spans: Spans) -> None:
        atomic = transaction.atomic()

        async def place() -> SpanContext:
            with spans.span("order") as order:
                await sync_to_async(atomic.__enter__)()
                await astash("orders", key="k", value="v")
                await sync_to_async(atomic.__exit__)(None, None, None)
            await sync_to_async(connections.close_all)()
            return order

        order = asyncio.run(place())
        assert headers() == [{"traceparent": header_of(order)}]

    def test_the_applications_propagator_decides(self, spans: Spans) -> None:
        token = context.attach(baggage.set_baggage("tenant", "7"))
        try:
            with spans.span("order"):
                write()
        finally:
            context.detach(token)
        assert headers()[0]["baggage"] == "tenant=7"


def is_child(span: ReadableSpan, parent: SpanContext) -> bool:
    assert span.parent is not None
    return (span.parent.trace_id, span.parent.span_id) == (
        parent.trace_id,
        parent.span_id,
    )


class TestOnce:
    def origin(self, spans: Spans) -> SpanContext:
        with spans.span("order") as order:
            return order

    def test_a_block_continues_the_trace(self, spans: Spans) -> None:
        origin = self.origin(spans)
        with once(message_of(origin), consumer="billing") as run, spans.span("inner"):
            assert run.is_first
        (process,) = spans.processed()
        inner = next(span for span in spans.all() if span.name == "inner")
        assert is_child(process, origin)
        assert is_child(inner, context_of(process))
        assert process.kind is SpanKind.CONSUMER
        assert process.links == ()

    def test_its_span_tells_where_the_message_was(self, spans: Spans) -> None:
        with once(message_of(None), consumer="billing") as run:
            assert run.is_first
        (process,) = spans.processed()
        assert process.parent is None
        attributes = dict(process.attributes or {})
        since: Any = attributes.pop("django_outbox.seconds_since_stash")
        waited: Any = attributes.pop("django_outbox.seconds_in_outbox")
        assert 30 <= since < 90
        assert waited == pytest.approx(10, abs=0.001)
        assert attributes == {
            "messaging.system": "kafka",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": "orders",
            "messaging.destination.partition.id": "3",
            "messaging.kafka.offset": 0,
            "messaging.message.id": "id-0",
            "django_outbox.consumer": "billing",
            "django_outbox.source": "shop",
        }
        assert "secret" not in process.to_json()

    def test_an_active_span_stays_the_parent(self, spans: Spans) -> None:
        origin = self.origin(spans)
        with (
            spans.span("poll") as poll,
            once(message_of(origin), consumer="billing") as run,
        ):
            assert run.is_first
        (process,) = spans.processed()
        assert is_child(process, poll)
        (link,) = process.links
        assert (link.context.trace_id, link.context.span_id) == (
            origin.trace_id,
            origin.span_id,
        )

    def test_without_a_trace_in_the_message_there_is_no_link(
        self, spans: Spans
    ) -> None:
        with spans.span("poll") as poll, once(message_of(None), consumer="b") as run:
            assert run.is_first
        (process,) = spans.processed()
        assert is_child(process, poll)
        assert process.links == ()

    def test_headers_that_are_no_context_are_ignored(self, spans: Spans) -> None:
        odd: Any = (("traceparent", b"\xff\xfe"), ("tracestate", None), ("x", b"\xc3"))
        message = ConsumedMessage(topic="orders", headers=odd)
        with once(message, consumer="billing") as run:
            assert run.is_first
        (process,) = spans.processed()
        assert process.parent is None

    def test_a_repeat_is_marked(self, spans: Spans) -> None:
        message = message_of(self.origin(spans))
        for is_first in (True, False):
            with once(message, consumer="billing") as run:
                assert run.is_first is is_first
        first, repeat = spans.processed()
        assert "django_outbox.repeat" not in (first.attributes or {})
        assert (repeat.attributes or {})["django_outbox.repeat"] is True

    def test_an_error_is_recorded(self, spans: Spans) -> None:
        with (
            pytest.raises(LookupError),
            once(message_of(None), consumer="billing") as run,
        ):
            assert run.is_first
            raise LookupError("no such order")
        (process,) = spans.processed()
        assert process.status.status_code is StatusCode.ERROR
        assert [event.name for event in process.events] == ["exception"]

    def test_so_is_an_error_of_the_block_itself(self, spans: Spans) -> None:
        with (
            pytest.raises(Exception, match="did not check"),
            once(message_of(None), consumer="billing"),
        ):
            pass
        (process,) = spans.processed()
        assert process.status.status_code is StatusCode.ERROR

    def test_nothing_stays_active(self, spans: Spans) -> None:
        with once(message_of(None), consumer="billing") as run:
            assert run.is_first
        write()
        assert headers() == [{}]

    def test_decorated_functions_have_it_too(self, spans: Spans) -> None:
        origin = self.origin(spans)

        @once(consumer="billing")
        def charge(message: ConsumedMessage) -> None:
            stash("charges", key="k", value="v")

        @once(consumer="mail", key=lambda message: message.identity)
        async def notify(message: ConsumedMessage) -> None:
            with spans.span("send"):
                await asyncio.sleep(0)

        charge(message_of(origin))
        asyncio.run(notify(message_of(origin)))  # type: ignore[arg-type]
        charged, notified = spans.processed()
        assert is_child(charged, origin)
        assert is_child(notified, origin)
        # What the handler stashes continues the trace.
        assert headers() == [{"traceparent": header_of(context_of(charged))}]
        sent = next(span for span in spans.all() if span.name == "send")
        assert is_child(sent, context_of(notified))

    def test_an_async_block_that_fails_is_recorded(self, spans: Spans) -> None:
        async def fail() -> None:
            async with once(message_of(None), consumer="billing") as run:
                assert run.is_first
                raise LookupError("no such order")

        with pytest.raises(LookupError):
            asyncio.run(fail())
        (process,) = spans.processed()
        assert process.status.status_code is StatusCode.ERROR

    def test_a_key_alone_has_no_span(self, spans: Spans) -> None:
        with once(key="any", consumer="billing") as run:
            assert run.is_first
        assert spans.processed() == []

    def test_it_can_be_switched_off(self, spans: Spans, settings: Settings) -> None:
        switch_off(settings)
        with once(message_of(self.origin(spans)), consumer="billing") as run:
            assert run.is_first
        assert spans.processed() == []


class TestRunconsumer:
    def test_each_message_has_one_span(self, spans: Spans) -> None:
        with spans.span("order") as origin:
            pass

        def handle(message: ConsumedMessage) -> None:
            Effect.objects.create(text="done")
            stash("charges", key="k", value="v")

        effects = effects_of(handle, keeps_offsets=False)
        assert effects.apply(message_of(origin))
        assert not effects.apply(message_of(origin))
        first, repeat = spans.processed()
        for process in (first, repeat):
            assert is_child(process, origin)
            attributes = process.attributes or {}
            assert attributes["messaging.consumer.group.name"] == "billing"
        assert (repeat.attributes or {})["django_outbox.repeat"] is True
        assert headers() == [{"traceparent": header_of(context_of(first))}]

    def test_each_message_of_a_batch_has_its_own(self, spans: Spans) -> None:
        origins = []
        for _ in range(2):
            with spans.span("order") as origin:
                origins.append(origin)
        effects = effects_of(lambda _: None, keeps_offsets=False)
        messages = [message_of(origin, n) for n, origin in enumerate(origins)]
        assert effects.apply_all(messages) == [True, True]
        for process, origin in zip(spans.processed(), origins, strict=True):
            assert is_child(process, origin)

    def test_a_failed_attempt_is_recorded(self, spans: Spans) -> None:
        def fail(message: ConsumedMessage) -> None:
            raise LookupError("no such order")

        with pytest.raises(LookupError):
            effects_of(fail, keeps_offsets=False).apply(message_of(None))
        (process,) = spans.processed()
        assert process.status.status_code is StatusCode.ERROR

    def test_output_continues_the_trace(self, spans: Spans) -> None:
        with spans.span("order") as origin:
            pass
        subscription = Subscription(
            topics=("orders",),
            group="billing",
            handle=lambda _: [Message("charges", key="k", value="v")],
            name="handle",
            transforms=True,
        )
        (made,) = Output(OutboxSettings()).messages(subscription, message_of(origin))
        (process,) = spans.processed()
        assert is_child(process, origin)
        assert made.headers[0] == ("traceparent", header_of(context_of(process)))
        off = Output(OutboxSettings(TRACING=False))
        (made,) = off.messages(subscription, message_of(origin))
        assert len(spans.processed()) == 1
        assert "traceparent" not in dict(made.headers)


class TestHarvester:
    def test_a_batch_has_a_span_from_its_first_row_to_kafka(
        self, spans: Spans, bootstrap_servers: str, topics: Topics
    ) -> None:
        topic = topics.create()
        with spans.span("order") as order, transaction.atomic():
            stash(topic, key="a", value="v")
        with transaction.atomic():
            stash(topic, key="b", value="v")
        written = OutboxRecord.objects.earliest("id").create_time

        harvest(fast_options(bootstrap_servers))

        (batch,) = [span for span in spans.all() if span.name == f"send {topic}"]
        assert batch.kind is SpanKind.PRODUCER
        assert batch.parent is None
        assert [header_of(link.context) for link in batch.links] == [header_of(order)]
        assert dict(batch.attributes or {})["messaging.batch.message_count"] == 2
        assert batch.start_time == pytest.approx(written.timestamp() * 1e9, abs=1e4)
        assert batch.start_time is not None
        assert batch.end_time is not None
        assert batch.end_time >= batch.start_time

    def test_what_was_stashed_in_no_span_has_none(
        self, spans: Spans, bootstrap_servers: str, topics: Topics
    ) -> None:
        with transaction.atomic():
            stash(topics.create(), key="a", value="v", headers={"kind": "test"})
        harvest(fast_options(bootstrap_servers))
        assert spans.all() == []

    def test_it_can_be_switched_off(
        self, spans: Spans, bootstrap_servers: str, topics: Topics
    ) -> None:
        with spans.span("order"), transaction.atomic():
            stash(topics.create(), key="a", value="v")
        harvest(fast_options(bootstrap_servers, TRACING=False))
        assert [span.name for span in spans.all()] == ["order"]


def harvest(options: OutboxSettings) -> None:
    """Relay all that is in the table."""
    with Harvester(name="one", options=options):
        eventually(lambda: not OutboxRecord.objects.exists())
