"""
What a client tells people of its cluster: each trouble once, and its end.

Each owner of clients has one `ClientErrors`, whose `callbacks` it gives to them.
While a broker is away, librdkafka repeats itself with every attempt to
connect.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import KafkaError as DriverError
from confluent_kafka.admin import AdminClient

from ..exceptions import KafkaUnavailable
from ..settings.kafka_rules import servers_of
from .brokers import brokers_of
from .causes import read_failure
from .config import KafkaConfig
from .logs import ClientLog

logger = logging.getLogger(__name__)

PROBE_TIMEOUT: Final = 0.1
"""Seconds for a question to any broker, while some cannot be used."""

PROBE_INTERVAL: Final = 0.5
"""Seconds between two such questions."""


class ClientErrors:
    """
    Remembers what was told until the clients work.

    `Brokers` logs what is wrong with a broker, once for all clients; the rest is
    logged here, once for each owner.

    Args:
        who: what is in trouble, as a person would call it.
        action: what it does, in the log's field of that name.
        config: of the clients: whose brokers they use.
    """

    def __init__(self, who: str, *, action: str, config: Mapping[str, Any]) -> None:
        self._who = who
        self._action = action
        self._brokers = brokers_of(servers_of(config))
        self.reported: set[str] = set()
        """Names of the errors since it last worked."""
        self.count = 0
        """How often there was trouble, a connection that was closed included."""
        self._probe_at = 0.0
        self.callbacks: KafkaConfig = {
            "error_cb": self.note,
            "logger": ClientLog(self._note_line),
        }
        """What makes a client report here; a part of its configuration."""

    @property
    def is_failing(self) -> bool:
        """Whether it is news that a client works."""
        return bool(self.reported) or self._brokers.is_failing

    def note(self, error: DriverError) -> None:
        """Log an error, as a warning if it is news; the `error_cb` of a client."""
        self.count += 1
        name = error.name()
        if error.code() == DriverError._ALL_BROKERS_DOWN:
            self._brokers.are_all_down(reporter=_CALLBACK)
            return
        if failure := read_failure(error.str()):
            self._brokers.failed(failure, reporter=_CALLBACK)
            return
        logger.log(
            logging.DEBUG if name in self.reported else logging.WARNING,
            "Kafka error in the %s: %s (%s)",
            self._who,
            error.str(),
            name,
            extra={"action": self._action, "code": name},
        )
        self.reported.add(name)

    def _note_line(self, line: str) -> None:
        """Take a line of the client's log that tells of a broken connection."""
        self.count += 1
        if failure := read_failure(line):
            self._brokers.failed(failure, reporter=_LOG)

    def recovered(self) -> None:
        """Note that a client works: it got an answer that it had to get."""
        self._brokers.work()
        if self.reported:
            self.reported.clear()
            extra = {"action": self._action}
            logger.info("The %s recovered", self._who, extra=extra)

    def probe(self, client: Consumer, topic: str) -> None:
        """Ask, now and then, for an answer, where no message may come to be one."""
        if not self.is_failing or time.monotonic() < self._probe_at:
            return
        with suppress(*RAISED):
            client.list_topics(topic, timeout=PROBE_TIMEOUT)
            self.recovered()
        self._probe_at = time.monotonic() + PROBE_INTERVAL

    def unavailable(self, what: str, error: KafkaException) -> KafkaUnavailable:
        """Turn the driver's exception into ours, with the cause if one is known."""
        reason: DriverError = error.args[0]
        # What a broker has answered is the cause itself.
        cause = self._brokers.explain() if reason.code() < 0 else ""
        return KafkaUnavailable(f"{what}: {cause or reason.str().rstrip('.')}.")


_CALLBACK: Final = "error_cb"
_LOG: Final = "logger"


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


def serve(client: Producer | Consumer | AdminClient) -> None:
    """Let a client that has failed report the cause."""
    with suppress(*RAISED):
        client.poll(0)


def drop(client: Producer) -> None:
    """Let go of what a client still holds; it is of no further use."""
    client.purge()
    serve(client)
