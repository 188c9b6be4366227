"""
What a client of a consumer tells people of its cluster: each trouble once.

While a broker is away, librdkafka repeats itself with every attempt to
connect.
"""

from __future__ import annotations

import logging

from confluent_kafka import KafkaError as DriverError
from confluent_kafka import KafkaException

from ..exceptions import KafkaUnavailable

logger = logging.getLogger(__name__)


class Trouble:
    """
    Remembers what was told until all is well again.

    Args:
        who: what is in trouble, as a person would call it.
    """

    def __init__(self, who: str) -> None:
        self._who = who
        self._told: set[str] = set()
        self.count = 0
        """How often there was trouble."""

    def note(self, error: DriverError) -> None:
        """Log an error, as a warning if it is news; the `error_cb` of a client."""
        self.count += 1
        name = error.name()
        logger.log(
            logging.DEBUG if name in self._told else logging.WARNING,
            "The %s is in trouble: %s (%s)",
            self._who,
            error.str(),
            name,
            extra={"action": "consume", "code": name},
        )
        self._told.add(name)

    def end(self) -> None:
        """Note that it works."""
        if self._told:
            self._told.clear()
            logger.info("The %s is well again", self._who, extra={"action": "consume"})


def unavailable(error: KafkaException) -> KafkaUnavailable:
    """Turn the driver's exception into ours."""
    reason: DriverError = error.args[0]
    return KafkaUnavailable(f"{reason.str()} ({reason.name()})")
