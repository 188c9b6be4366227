"""Messages that pass classes of MIDDLEWARE, without a table and without Kafka."""

from __future__ import annotations

from typing import Any

from django_outbox.message.incoming import ConsumedMessage
from django_outbox.message.limits import Headers
from django_outbox.message.middleware import Middleware, handle_within, stash_hook
from django_outbox.message.outgoing import Message, Rows
from django_outbox.settings.options import OutboxSettings


def sent(
    *middleware: Middleware,
    value: Any,
    topic: str = "orders",
    key: str = "17",
    headers: Headers = (),
) -> ConsumedMessage:
    """Return a stashed message as Kafka would hold it, without the outbox's headers."""
    rows = Rows(OutboxSettings(), str, transform=stash_hook(middleware))
    row = rows.make(Message(topic, key=key, value=value, headers=headers))
    pairs = zip(row.header_names, row.header_values, strict=True)
    return ConsumedMessage(
        topic=topic,
        key=key.encode() or None,
        value=row.raw if row.text is None else row.text.encode(),
        headers=tuple((name, text.encode()) for name, text in pairs),
    )


def handled(*middleware: Middleware, message: ConsumedMessage) -> ConsumedMessage:
    """Return what the handler of a message gets."""
    got: list[ConsumedMessage] = []
    handle_within(middleware, message, got.append)
    (found,) = got
    return found


def with_headers(message: ConsumedMessage, **changed: bytes | None) -> Any:
    """Return the headers with others for some of them; None: without it."""
    names = {name.replace("_", "-"): value for name, value in changed.items()}
    kept = [pair for pair in message.headers if pair[0] not in names]
    return (*kept, *((n, v) for n, v in names.items() if v is not None))
