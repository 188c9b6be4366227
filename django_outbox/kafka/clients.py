"""
Makes clients of the driver, and says in our own words that one cannot be made.

With a callback for tokens (`oauth_cb`) the driver waits for the first token
while it makes a client. An identity provider that is away is then like a broker
that is away: it is waited for, and ends no process.
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
        KafkaUnavailable: it could not be made now.
    """
    try:
        return kind(config)
    except RAISED as error:
        # A system error: the driver has called `error_cb` while it raised another.
        cause = driver_error(error)
        reason = f"{cause.str()} ({cause.name()})" if cause else str(error)
        raise KafkaUnavailable(f"Cannot create a Kafka client: {reason}.") from error
