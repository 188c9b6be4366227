"""
Creates clients of the driver, and translates its exceptions.

With a callback for tokens (`oauth_cb`) the driver waits for the first token while
it creates a client. An outage of the identity provider is therefore treated like
one of a broker: callers retry, and no process ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ..exceptions import KafkaUnavailable
from .client_errors import RAISED, driver_error
from .config import KafkaConfig

_Client = TypeVar("_Client")


def make(kind: Callable[[KafkaConfig], _Client], config: KafkaConfig) -> _Client:
    """
    Return a new client of the driver.

    Raises:
        KafkaUnavailable: the client could not be created now.
    """
    try:
        return kind(config)
    except RAISED as error:
        # SystemError: the driver called `error_cb` while it raised another error.
        cause = driver_error(error)
        reason = f"{cause.str()} ({cause.name()})" if cause else str(error)
        raise KafkaUnavailable(f"Cannot create a Kafka client: {reason}.") from error
