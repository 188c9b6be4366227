"""Messages on their way through MIDDLEWARE, and the how-to, block by block."""

from __future__ import annotations

import asyncio
import base64
import io
import logging
import re
import sys
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.db import transaction
from django.http import FileResponse, HttpRequest, HttpResponse
from django.test import RequestFactory
from pytest_django import Settings

from django_outbox import stash, stash_delayed, stash_many
from django_outbox.consuming.effects import TransactionalHandler
from django_outbox.consuming.handlers import Group, Subscription
from django_outbox.contrib import context
from django_outbox.exceptions import InvalidMessage
from django_outbox.message.incoming import ConsumedMessage
from django_outbox.message.middleware import load
from django_outbox.message.outgoing import Message
from django_outbox.models import OutboxRecord, ProcessedMessage, StagedRecord

PAGE = (Path(__file__).parents[2] / "docs/howto/middleware.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
MASKED, MASKED_SETTINGS, CONTEXT_SETTINGS, BOUND, OWN, _CELERY = BLOCKS

CONTEXT = "django_outbox.contrib.context.ContextHeaders"


@pytest.fixture
def masked(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> ModuleType:
    """The page's first middleware, as the setting has it."""
    module = ModuleType("shop.messaging")
    exec(compile(MASKED, "middleware.md", "exec"), vars(module))  # noqa: S102
    monkeypatch.setitem(sys.modules, "shop", ModuleType("shop"))
    monkeypatch.setitem(sys.modules, "shop.messaging", module)
    names: dict[str, Any] = {}
    exec(compile(MASKED_SETTINGS, "middleware.md", "exec"), names)  # noqa: S102
    wanted = names["DJANGO_OUTBOX"]["MIDDLEWARE"]
    settings.DJANGO_OUTBOX = {**settings.DJANGO_OUTBOX, "MIDDLEWARE": wanted}
    return module


@pytest.fixture
def carried(settings: Settings) -> None:
    """The context is part of messages."""
    settings.DJANGO_OUTBOX = {**settings.DJANGO_OUTBOX, "MIDDLEWARE": [CONTEXT]}


def arrived(row: OutboxRecord) -> ConsumedMessage:
    """Return a row as a consumer gets it."""
    value = row.kafka_value_bytes if row.kafka_value is None else row.kafka_value
    raw = value.encode() if isinstance(value, str) else value
    names, values = row.kafka_header_keys, row.kafka_header_values
    headers = [(n, v.encode()) for n, v in zip(names, values, strict=True)]
    headers.append(("outbox-message-id", str(row.message_id).encode()))
    return ConsumedMessage(
        topic=row.kafka_topic,
        key=row.kafka_key.encode(),
        value=None if raw is None else bytes(raw),
        headers=tuple(headers),
    )


@pytest.fixture
def handled() -> list[ConsumedMessage]:
    """What handlers got."""
    return []


def handler(
    handled: list[ConsumedMessage], settings: Settings, **subscription: Any
) -> TransactionalHandler:
    """Make what `runconsumer` runs for each message."""
    one = Subscription(
        name="test", group="g", topics=("t",), handle=handled.append, **subscription
    )
    return TransactionalHandler(
        Group("g", (one,)),
        alias="default",
        keeps_offsets=False,
        partitions=None,  # type: ignore[arg-type]  # offsets are in Kafka
        idle_timeout=0.0,
        middleware=load(settings.DJANGO_OUTBOX["MIDDLEWARE"]),
    )


# Where messages are written and consumed.


@pytest.mark.django_db
@pytest.mark.usefixtures("masked")
def test_every_way_to_stash_passes_it() -> None:
    with transaction.atomic():
        stash("t", key="k", value={"a": 1})
        stash_many([Message("t", key="k", value="b") for _ in range(12)])
        stash_delayed("t", key="k", value="c", not_before=timedelta(hours=1))
    values = list(OutboxRecord.objects.values_list("kafka_value_bytes", flat=True))
    assert [base64.b64decode(bytes(value or b"")) for value in values] == [
        b'{"a":1}'
    ] + [b"b"] * 12
    (delayed,) = StagedRecord.objects.all()
    assert base64.b64decode(bytes(delayed.kafka_value_bytes or b"")) == b"c"
    assert delayed.kafka_header_keys == ["masked"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("masked")
def test_a_handler_gets_what_was_stashed(
    settings: Settings, handled: list[ConsumedMessage]
) -> None:
    with transaction.atomic():
        stash("t", key="k", value={"a": 1})
    message = arrived(OutboxRecord.objects.get())
    assert message.value != b'{"a":1}'
    runs = handler(handled, settings, key=lambda m: str(m.json()["a"]))
    assert [runs.apply(message), runs.apply(message)] == [True, False]
    assert [given.value for given in handled] == [b'{"a":1}']
    # Its own key is made of what the handler sees.
    assert ProcessedMessage.objects.get().key == "1"


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("masked")
def test_messages_of_a_batch_pass_it_too(
    settings: Settings, handled: list[ConsumedMessage]
) -> None:
    with transaction.atomic():
        stash_many([Message("t", key="k", value=text) for text in "ab"])
    messages = [arrived(row) for row in OutboxRecord.objects.order_by("id")]
    assert handler(handled, settings).apply_all(messages) == [True, True]
    assert [given.value for given in handled] == [b"a", b"b"]


# The context.


@pytest.mark.django_db
@pytest.mark.usefixtures("carried")
def test_the_context_is_on_every_message_but_for_headers_of_its_own() -> None:
    with transaction.atomic(), context.bound(tenant="acme", user_id="7"):
        stash("t", key="k", value="", headers={"a": "b", "context-tenant": "mine"})
        with context.bound(tenant="other"):
            stash("t", key="k", value="")
    with transaction.atomic():
        stash("t", key="k", value="")
    headers = [
        dict(zip(row.kafka_header_keys, row.kafka_header_values, strict=True))
        for row in OutboxRecord.objects.order_by("id")
    ]
    assert headers == [
        {"a": "b", "context-tenant": "mine", "context-user-id": "7"},
        {"context-tenant": "other", "context-user-id": "7"},
        {},
    ]


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("carried")
def test_a_handler_has_the_context_of_its_message_and_passes_it_on(
    settings: Settings,
) -> None:
    with transaction.atomic(), context.bound(correlation_id="c-1"):
        stash("t", key="k", value="")
    message = arrived(OutboxRecord.objects.get())

    class Follow(list[ConsumedMessage]):
        def append(self, _: ConsumedMessage) -> None:
            assert context.current() == {"correlation_id": "c-1"}
            stash("t", key="k", value="next")

    with context.bound(tenant="of somebody else"):
        assert handler(Follow(), settings).apply(message)
    following = OutboxRecord.objects.get(kafka_value="next")
    assert following.kafka_header_keys == ["context-correlation-id"]
    assert following.kafka_header_values == ["c-1"]


def test_what_others_write_into_headers_is_bound_only_if_it_is_sound() -> None:
    headers = (
        ("context-tenant", b"acme"),
        ("context-Bad Name", b"x"),
        ("context-empty", b""),
        ("context-long", b"x" * 501),
        ("context-line", b"a\nforged"),
        ("context-bytes", b"\xff"),
        ("context-null", None),
        ("tenant", b"x"),
    )
    with context.of(ConsumedMessage(topic="t", headers=headers)):
        assert context.current() == {"tenant": "acme"}
    assert context.current() == {}


@pytest.mark.parametrize(
    "values",
    [
        {"Tenant": "a"},
        *({"tenant": value} for value in ("", "x" * 501, 1, "a\nb")),
    ],
)
def test_what_cannot_be_a_header_is_not_bound(values: dict[str, Any]) -> None:
    with pytest.raises(InvalidMessage, match=r"^context: "), context.bound(**values):
        raise AssertionError("it was bound")
    assert context.current() == {}


@pytest.mark.parametrize(
    ("given", "is_kept"),
    [("r-1.a_B", True), ("", False), ("a b", False), ("x" * 201, False)],
)
def test_a_request_has_an_id_that_its_answer_tells(given: str, is_kept: bool) -> None:
    seen: list[str] = []

    def view(_: HttpRequest) -> HttpResponse:
        seen.append(context.current()["correlation_id"])
        return HttpResponse()

    request = RequestFactory().get("/", headers={"X-Request-ID": given})
    response = context.RequestContext(view)(request)
    assert isinstance(response, HttpResponse)
    assert response.headers["X-Request-ID"] == seen[0]
    assert (seen[0] == given) is is_kept
    assert len(seen[0]) == (len(given) if is_kept else 36)
    assert context.current() == {}


def test_a_file_is_an_answer_too() -> None:
    served = context.RequestContext(lambda _: FileResponse(io.BytesIO(b"a,b")))
    response = served(RequestFactory().get("/", headers={"X-Request-ID": "r-1"}))
    assert isinstance(response, FileResponse)
    assert response.headers["X-Request-ID"] == "r-1"


def test_requests_that_are_served_at_the_same_time_have_contexts_of_their_own() -> None:
    async def view(request: HttpRequest) -> HttpResponse:
        await asyncio.sleep(0)  # the subject: other requests run meanwhile
        return HttpResponse(context.current()["correlation_id"])

    served = context.RequestContext(view)

    async def serve() -> list[Any]:
        requests = [
            RequestFactory().get("/", headers={"X-Request-ID": f"r-{n}"})
            for n in range(3)
        ]
        return await asyncio.gather(*(served(r) for r in requests))  # type: ignore[arg-type]

    answers = asyncio.run(serve())
    assert [answer.content for answer in answers] == [b"r-0", b"r-1", b"r-2"]


def test_log_records_have_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.handler.addFilter(context.ContextFilter())
    logger = logging.getLogger("shop")
    logger.warning("before")
    with context.bound(correlation_id="c-1", tenant="acme"):
        logger.warning("within")
    before, within = caplog.records
    assert vars(before)["correlation_id"] == "-"
    assert (vars(within)["correlation_id"], vars(within)["tenant"]) == ("c-1", "acme")


# The page.


@pytest.mark.django_db(transaction=True)
def test_the_page_does_what_it_says(settings: Settings) -> None:
    names: dict[str, Any] = {}
    names["MIDDLEWARE"] = ["django.middleware.csrf.CsrfViewMiddleware"]
    exec(compile(CONTEXT_SETTINGS, "middleware.md", "exec"), names)  # noqa: S102
    wanted = names["DJANGO_OUTBOX"]["MIDDLEWARE"]
    settings.DJANGO_OUTBOX = {**settings.DJANGO_OUTBOX, "MIDDLEWARE": wanted}
    assert names["MIDDLEWARE"] == [
        f"{context.__name__}.RequestContext",
        "django.middleware.csrf.CsrfViewMiddleware",
    ]
    # Otherwise Python silences Django's own loggers, which exist by then.
    assert names["LOGGING"]["disable_existing_loggers"] is False
    formats = names["LOGGING"]["formatters"]["line"]
    assert formats["format"].startswith("{correlation_id}")
    exec(compile(BOUND, "middleware.md", "exec"), names)  # noqa: S102
    names["message"] = arrived(OutboxRecord.objects.get())
    exec(compile(OWN, "middleware.md", "exec"), names)  # noqa: S102
    assert names["tenant"] == "acme"
