"""
The brokers of one Kafka cluster: which ones fail, and why.

Every client of the process reports here, so a cause is logged once, however many
clients meet it, and again at growing intervals while it lasts.
"""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from threading import Lock
from typing import Final

from .causes import BrokerFailure

logger = logging.getLogger(__name__)

FIRST_LOG_INTERVAL: Final = 60.0
"""Seconds before a lasting cause is logged again; doubles each time."""

MAX_LOG_INTERVAL: Final = 960.0
"""Seconds between two log lines of one cause, at most."""

RECOVERED_AFTER: Final = 60.0
"""Seconds without a failure after which one broker of several has recovered. A
connection attempt takes at most 30 by default."""

MAX_LOGGED_RECOVERIES: Final = 3
"""Recoveries logged individually; a flapping broker is then logged once per
`FIRST_LOG_INTERVAL`."""

_UNKNOWN: Final = "no broker reachable"

EXPLAINS_FOR: Final = 5.0
"""Seconds for which a failure that was not logged explains other errors."""


@dataclass(slots=True)
class _Failing:
    """A current failure of one broker."""

    last: float
    """When it last occurred."""
    times: Counter[str] = field(default_factory=Counter)
    """Occurrences in a row, by reporter: one failure may be reported twice."""
    is_logged: bool = False
    log_at: float = 0.0
    recoveries: int = 0
    """How often it has ended."""
    pause: float = FIRST_LOG_INTERVAL


class Brokers:
    """
    The brokers of one Kafka; safe to use from every thread.

    Args:
        servers: the addresses in the settings.
    """

    def __init__(
        self, servers: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._servers = servers
        self._clock = clock
        self._lock = Lock()
        self._failing: dict[tuple[str, str], _Failing] = {}
        """By broker and cause, the latest last."""
        self._over: dict[tuple[str, str], _Failing] = {}
        """Failures that had ended at the last answer, and occurred shortly before."""
        self.are_all_down = False
        """Whether no broker could be reached since the last success."""
        self.is_failing = False
        """Whether there was a failure since the last success."""

    def failed(self, failure: BrokerFailure, *, reporter: str) -> None:
        """Note a failure; log it when its cause is new or an interval is over."""
        broker, cause, confirmations = failure
        with self._lock:
            now = self._clock()
            self.is_failing = True
            known = self._known(broker, cause, now)
            self._failing[broker, cause] = known
            known.last = now
            known.times[reporter] += 1
            if known.times[reporter] < confirmations or now < known.log_at:
                return
            known.is_logged = True
            known.log_at = now + known.pause
            known.pause = min(2 * known.pause, MAX_LOG_INTERVAL)
        logger.warning(
            "%s; retrying",
            _sentence(broker, cause),
            extra={"action": "kafka_lost", "broker": broker},
        )

    def _known(self, broker: str, cause: str, now: float) -> _Failing:
        known = self._failing.pop((broker, cause), None)
        known = known or self._over.pop((broker, cause), None)
        if known is None or now - known.last > RECOVERED_AFTER:
            return _Failing(now)
        return known

    def all_failed(self, *, reporter: str) -> None:
        """Note that a client can reach no broker at all."""
        with self._lock:
            self.are_all_down = True
            is_known = any(cause != _UNKNOWN for _, cause in self._failing)
        if not is_known:
            self.failed(BrokerFailure(self._servers, _UNKNOWN, 2), reporter=reporter)

    def answered(self) -> None:
        """Note that a client got an answer; log recovered brokers."""
        with self._lock:
            now = self._clock()
            # An answer from one broker does not mean that another recovered.
            recovered = [
                key
                for key, known in self._failing.items()
                if self.are_all_down or now - known.last > RECOVERED_AFTER
            ]
            logged = [key[0] for key in recovered if self._failing[key].is_logged]
            for key in recovered:
                self._over[key] = known = self._failing.pop(key)
                known.times.clear()
                known.is_logged = False
                known.pause = FIRST_LOG_INTERVAL
                known.recoveries += 1
                if known.recoveries <= MAX_LOGGED_RECOVERIES:
                    known.log_at = now
            self._over = {
                key: known
                for key, known in self._over.items()
                if now - known.last <= RECOVERED_AFTER
            }
            self.are_all_down = False
            self.is_failing = bool(self._failing)
        for broker in dict.fromkeys(logged):
            extra = {"action": "kafka_found", "broker": broker}
            logger.info("Kafka at %s recovered", broker, extra=extra)

    def outage(self) -> str:
        """Return why no broker can be reached; empty if one can."""
        if not self.are_all_down:
            return ""
        return self.explain() or _sentence(self._servers, _UNKNOWN)

    def explain(self) -> str:
        """Return which brokers fail now, and why; empty if none does."""
        with self._lock:
            now = self._clock()
            failing = {
                broker: cause
                for (broker, cause), known in self._failing.items()
                if known.is_logged or now - known.last < EXPLAINS_FOR
            }
        return "; ".join(_sentence(*both) for both in sorted(failing.items()))


def _sentence(broker: str, cause: str) -> str:
    return f"Kafka at {broker} unavailable: {cause}"


@cache
def brokers_of(servers: str) -> Brokers:
    """Return the object that all clients of these addresses share."""
    return Brokers(servers)


# Another thread of the parent may hold a lock, which stays locked in the child.
os.register_at_fork(after_in_child=brokers_of.cache_clear)
