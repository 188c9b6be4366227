"""Hands a message to a client whose queue may be full."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeAlias

from confluent_kafka import KafkaException
from confluent_kafka import Producer as Client

from ..message.headers import Headers
from .failures import failure, never_fits

QUEUE_WAIT: Final = 0.05
"""Seconds to wait for room at a time."""

Message: TypeAlias = tuple[
    str, str | bytes | None, str | bytes | None, int, Callable[..., None]
]
"""Topic, value, key, partition and the callback of the delivery report."""


def queue(client: Client, message: Message, headers: Headers, *, until: float) -> bool:
    """
    Queue a message as soon as there is room for it.

    Args:
        until: monotonic seconds to wait until.

    Returns:
        False: there was no room in time.

    Raises:
        DeliveryFailed: the client does not accept it.
    """
    while True:
        try:
            client.produce(*message, headers=headers)
        except BufferError:
            pass
        except KafkaException as error:
            raise failure(error.args[0], is_alone=True) from error
        else:
            return True
        if not len(client):
            raise never_fits()
        if time.monotonic() >= until:
            return False
        client.poll(QUEUE_WAIT)
