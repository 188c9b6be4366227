"""
Turns what a transforming handler returns into messages to send.

Checks, serializer and headers are those of a message of the outbox. A message id
is derived from the input's key and the position in the output, so an input that
arrives twice yields the same ids twice.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from typing import Any, Final

from ..exceptions import ConsumingError
from ..idempotence.claims import checked_key
from ..message.headers import MESSAGE_ID
from ..message.incoming import ConsumedMessage, OutgoingMessage
from ..message.middleware import handle_within, load, overriding
from ..message.outgoing import Message
from ..observability.tracing import ProcessSpan
from ..settings.options import OutboxSettings
from ..stashing.transaction import make_rows
from .handler_exits import exits_as_errors
from .handlers import Subscription

_NAMESPACE: Final = uuid.UUID("6f4d6f7c-5b1e-4d0e-9f0e-2a1c8b7a9d35")
"""UUID namespace of the message ids of output; must never change."""


class Output:
    """Makes outgoing messages from the return values of handlers."""

    def __init__(self, options: OutboxSettings) -> None:
        self._is_traced = options.TRACING
        self._rows = make_rows(options)
        self._middleware = overriding(load(options.MIDDLEWARE), "consume")

    def messages(
        self, subscription: Subscription, message: ConsumedMessage
    ) -> list[OutgoingMessage]:
        """
        Call the handler and return its output.

        Raises:
            InvalidMessage: An output message breaks a limit.
            ConsumingError: The handler returned something other than messages.
        """
        output: list[OutgoingMessage] = []

        def handle(message: ConsumedMessage) -> None:
            source = subscription.key(message) if subscription.key else message
            seed = f"{subscription.group}/{checked_key(source)}"
            with exits_as_errors(subscription.name):
                output[:] = [
                    self._outgoing(made, f"{seed}/{number}", subscription)
                    for number, made in enumerate(
                        _messages(subscription.handle(message))
                    )
                ]

        with ProcessSpan(
            message if self._is_traced else None,
            consumer=subscription.group,
            is_group=True,
        ):
            handle_within(self._middleware, message, handle)
        return output

    def _outgoing(
        self, made: Any, seed: str, subscription: Subscription
    ) -> OutgoingMessage:
        if not isinstance(made, Message):
            raise ConsumingError(
                f"{subscription.name}: with transforms=True it must return or yield "
                f"Message(...), not {type(made).__name__}."
            )
        row = self._rows.make(made)
        own = (
            (MESSAGE_ID, str(uuid.uuid5(_NAMESPACE, seed))),
            ("outbox-source", subscription.group),
            ("outbox-created-at", str(time.time_ns() // 1000)),
        )
        headers = [*zip(row.header_names, row.header_values, strict=True), *own]
        value = row.text if row.raw is None else row.raw
        return OutgoingMessage(row.topic, row.key, value, [*headers], row.partition)


def _messages(returned: Any) -> Iterable[Any]:
    if returned is None:
        return ()
    is_many = isinstance(returned, Iterable) and not isinstance(returned, str | bytes)
    return returned if is_many else (returned,)
