"""
Logs the errors of Kafka clients: each one once, and the recovery.

librdkafka repeats an error with every attempt to connect. An owner of clients
has one `ClientErrors` and configures its clients with the `callbacks`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import KafkaError as DriverError

from ..exceptions import KafkaUnavailable
from ..settings.kafka_rules import servers_of
from .brokers import brokers_of
from .causes import read_failure
from .clients import RAISED, check_resources
from .config import KafkaConfig

logger = logging.getLogger(__name__)

PROBE_TIMEOUT: Final = 0.1
"""Seconds that the first probe may take; doubles until Kafka answers. A consumer that
is not polled just after it has joined its group delays a rebalance."""

MAX_PROBE_TIMEOUT: Final = 1.0
"""Seconds that one probe may take, at most."""

PROBE_INTERVAL: Final = 0.5
"""Seconds between two probes."""

_CALLBACK: Final = "error_cb"
_LOG: Final = "logger"

_FAILED: Final = "FAIL"
"""librdkafka's facility for lines about failed connections."""


class ClientErrors:
    """
    Remembers which errors were logged, until the clients work again.

    Errors of a broker go to `Brokers`, which logs them once for all clients. The
    others are logged here, once for each owner.

    Args:
        who: the owner, as log lines name it.
        action: the owner's `action` in the log.
        config: the clients' properties, with the addresses of the brokers.
    """

    def __init__(self, who: str, *, action: str, config: Mapping[str, Any]) -> None:
        self._who = who
        self._action = action
        self._brokers = brokers_of(servers_of(config))
        self.reported: set[str] = set()
        """Names of the errors that were logged since it last worked."""
        self.count = 0
        """Number of errors so far, with connections that were closed."""
        self._probe_at = 0.0
        self._probe_timeout = PROBE_TIMEOUT
        self._count_at_answer: int | None = None
        """Number of errors when a probe was answered, until the next one."""
        self.callbacks: KafkaConfig = {
            "error_cb": self.note,
            "logger": ClientLog(self._note_line),
        }
        """Properties that make a client report here."""

    @property
    def is_failing(self) -> bool:
        """Whether there were errors since a client last worked."""
        return bool(self.reported) or self._brokers.is_failing

    def note(self, error: DriverError) -> None:
        """
        Log an error, as a warning the first time; the `error_cb` of a client.

        Raises:
            OutOfResources: through the call that serves the client.
        """
        check_resources(error)
        self.count += 1
        name = error.name()
        if error.code() == DriverError._ALL_BROKERS_DOWN:
            self._brokers.all_failed(reporter=_CALLBACK)
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
        """Read a line of the client's log about a broken connection."""
        self.count += 1
        if failure := read_failure(line):
            self._brokers.failed(failure, reporter=_LOG)

    def recovered(self) -> None:
        """Note that a client got an answer; log the recovery."""
        self._brokers.answered()
        self._probe_timeout = PROBE_TIMEOUT
        self._count_at_answer = None
        if self.reported:
            self.reported.clear()
            extra = {"action": self._action}
            logger.info("The %s recovered", self._who, extra=extra)

    def probe(self, client: Consumer, topic: str) -> None:
        """
        Check now and then for recovery: a consumer may get no messages.

        Errors from before an answer may come with the next poll. So Kafka is back when
        there was none until the next call.
        """
        if not self.is_failing:
            return
        if self._count_at_answer == self.count:
            self.recovered()
            return
        if time.monotonic() < self._probe_at:
            return
        try:
            client.list_topics(topic, timeout=self._probe_timeout)
        except RAISED:
            # The broker may just be far away.
            self._probe_timeout = min(2 * self._probe_timeout, MAX_PROBE_TIMEOUT)
        else:
            self._count_at_answer = self.count
        self._probe_at = time.monotonic() + PROBE_INTERVAL

    def unavailable(self, what: str, error: KafkaException) -> KafkaUnavailable:
        """Convert the driver's exception to ours, with the cause if it is known."""
        reason: DriverError = error.args[0]
        # An error that a broker answered with is the cause itself.
        cause = self._brokers.explain() if reason.code() < 0 else ""
        return KafkaUnavailable(f"{what}: {cause or reason.str().rstrip('.')}.")


class ClientLog:
    """
    The `logger` of a client's configuration; called while it is polled.

    librdkafka's lines go to DEBUG: during an outage every client writes dozens of
    them each second. But only they say, for example, that a broker closed a
    connection, so those about failed connections are also passed on.

    Args:
        on_failure: called with each line about a failed connection.
    """

    def __init__(self, on_failure: Callable[[str], None]) -> None:
        self._on_failure = on_failure

    def log(self, level: int, message: str, *args: object) -> None:
        """Log a line, with librdkafka's level in the text."""
        if args and args[0] == _FAILED:
            self._on_failure(str(args[-1]))
        if logger.isEnabledFor(logging.DEBUG):
            line = message % args if args else message
            logger.debug("%s: %s", logging.getLevelName(level), line)


SILENT: Final[KafkaConfig] = {
    _CALLBACK: lambda _: None,
    _LOG: ClientLog(lambda _: None),
}
"""Of a client whose errors another one logs, or the failing call raises."""
