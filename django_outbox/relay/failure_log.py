"""
Logs failed deliveries: each cause at once, and rarely while it lasts.

A topic that accepts nothing makes a new failure with each of its keys and with each
retry. One line for each would bury all others.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from ..message.record import Failure

logger = logging.getLogger(__name__)

FIRST_INTERVAL: Final = 60.0
"""Seconds before a lasting cause is logged again; doubles each time."""

MAX_INTERVAL: Final = 960.0
"""Seconds between two lines of one cause, at most."""

OVER_AFTER: Final = 60.0
"""Seconds without a failure after which the next one is logged at once."""


@dataclass(slots=True)
class _Cause:
    """One error of one topic, as it lasts."""

    last_at: float
    log_at: float
    interval: float = FIRST_INTERVAL
    unlogged: int = 0
    """Failures since the last line."""


class FailureLog:
    """
    The lines about deliveries that failed, by topic and code of the error.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._causes: dict[tuple[str, str], _Cause] = {}

    def note(self, failures: Iterable[Failure]) -> None:
        """Log failures whose cause is new, or was last logged an interval ago."""
        now = self._clock()
        self._causes = {
            key: cause
            for key, cause in self._causes.items()
            if now - cause.last_at <= OVER_AFTER
        }
        by_cause = defaultdict[tuple[str, str], list[Failure]](list)
        for failure in failures:
            code, _, _ = failure.error.partition(":")
            by_cause[failure.record.topic, code].append(failure)
        for key, rows in by_cause.items():
            cause = self._causes.setdefault(key, _Cause(last_at=now, log_at=now))
            cause.last_at = now
            cause.unlogged += len(rows)
            if now >= cause.log_at:
                _log(rows[0], cause.unlogged)
                cause.unlogged = 0
                cause.log_at = now + cause.interval
                cause.interval = min(2 * cause.interval, MAX_INTERVAL)


def _log(failure: Failure, count: int) -> None:
    record, error = failure
    logger.warning(
        "Cannot deliver record %s%s to %s: %s",
        record.id,
        f" and {count - 1} more" if count > 1 else "",
        record.topic,
        error,
        extra={"action": "delivery_failed", "records": count},
    )
