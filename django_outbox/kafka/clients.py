"""
Makes clients of the driver, and says in our own words that one cannot be made.

With a callback for tokens (`oauth_cb`) the driver waits for the first token
while it makes a client. An identity provider that is away is then like a broker
that is away: it is waited for, and ends no process.
"""

from __future__ import annotations

import sys
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
        told = driver_error(error)
        reason = f"{told.str()} ({told.name()})" if told else str(error)
        raise KafkaUnavailable(f"No Kafka client can be made: {reason}.") from error
    except BaseException:
        raise
    except:  # noqa: E722
        # Up to Python 3.11 the driver's bare error, which is not an exception, has
        # come up here. Only this clause catches it, and to chain it would be unsafe.
        stray = str(sys.exc_info()[1])
    raise KafkaUnavailable(f"No Kafka client can be made: {stray}.")
