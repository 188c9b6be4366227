"""
What a client tells people of its cluster: each trouble once, and its end.

While a broker is away, librdkafka repeats itself with every attempt to
connect.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Final

from confluent_kafka import KafkaError as DriverError
from confluent_kafka import KafkaException, Producer

from ..exceptions import KafkaUnavailable

logger = logging.getLogger(__name__)


class Trouble:
    """
    Remembers what was told until all is well again.

    Args:
        who: what is in trouble, as a person would call it.
        action: what it does, in the log's field of that name.
    """

    def __init__(self, who: str, *, action: str) -> None:
        self._who = who
        self._action = action
        self.told: set[str] = set()
        """Names of the errors since it was last known to be well."""
        self.count = 0
        """How often there was trouble."""

    def note(self, error: DriverError) -> None:
        """Log an error, as a warning if it is news; the `error_cb` of a client."""
        self.count += 1
        name = error.name()
        logger.log(
            logging.DEBUG if name in self.told else logging.WARNING,
            "The %s is in trouble: %s (%s)",
            self._who,
            error.str(),
            name,
            extra={"action": self._action, "code": name},
        )
        self.told.add(name)

    def end(self) -> None:
        """Note that it works."""
        if self.told:
            self.told.clear()
            extra = {"action": self._action}
            logger.info("The %s is well again", self._who, extra=extra)


RAISED: Final = (KafkaException, SystemError)
"""What any call that serves callbacks may raise once the client is fenced: the
driver raises a fatal error there, and Python wraps it when more callbacks follow."""


def driver_error(error: Exception) -> DriverError | None:
    """
    Return what the driver says in an error that was raised, or in its cause.

    None: the driver has lost it, which it does when a fatal error and a report
    come together; the next call raises it again.
    """
    cause = error if isinstance(error, KafkaException) else error.__cause__
    return cause.args[0] if isinstance(cause, KafkaException) else None


def drop(client: Producer) -> None:
    """Let go of what a client still holds; it is of no further use."""
    client.purge()
    with suppress(*RAISED):
        client.poll(0)


def unavailable(error: KafkaException) -> KafkaUnavailable:
    """Turn the driver's exception into ours."""
    reason: DriverError = error.args[0]
    return KafkaUnavailable(f"{reason.str()} ({reason.name()})")
