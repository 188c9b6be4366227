"""
Delays joining a consumer group until a join cannot depose its leader.

A join starts a rebalance, which ends when every member has rejoined. Until then
the leader's commits are refused, so it cannot prove itself. Live members rejoin
within a group heartbeat; a crashed member delays the rebalance until its session
expires, which is longer than a leader stays trusted. Therefore a new process
waits for a session time-out and a bit while the group has members: sessions of
members that crashed before have expired by then. It loses nothing: when the last
member leaves or expires, the group is empty and can be joined at once.
"""

from __future__ import annotations

import time
from concurrent.futures import TimeoutError as FutureTimeout

from confluent_kafka import ConsumerGroupState, KafkaException
from confluent_kafka import KafkaError as DriverError
from confluent_kafka.admin import AdminClient

from ..election.ports import JoinLater
from .client_errors import ClientErrors
from .clients import make
from .config import KafkaConfig

DESCRIBE_TIMEOUT = 1.0
"""Seconds that one description of the group may take."""

REBALANCE_TIME = 1.0
"""Seconds for the rebalance after a session has expired."""

_EMPTY = frozenset({ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD})


class JoinGate:
    """
    Decides when a new process may join; for one thread.

    Args:
        config: properties of an admin client.
        group: the leader group.
        session_timeout: of the members, in seconds.
    """

    def __init__(
        self, config: KafkaConfig, *, group: str, session_timeout: float
    ) -> None:
        self._config = config
        self._group = group
        self._session_timeout = session_timeout
        self._errors = ClientErrors("join check", action="join", config=config)
        self._admin: AdminClient | None = None
        self._came_at = 0.0

    @property
    def is_waiting(self) -> bool:
        """Whether the process is waiting to join."""
        return self._admin is not None

    def enter(self) -> None:
        """
        Return when joining is safe.

        Raises:
            JoinLater: not yet; call again after a moment.
        """
        if self._admin is None:
            callbacks = self._errors.callbacks
            client_config: KafkaConfig = {**self._config, **callbacks}
            self._admin = make(AdminClient, client_config)
            self._came_at = time.monotonic()
        max_wait = self._session_timeout + REBALANCE_TIME
        must_wait = time.monotonic() - self._came_at < max_wait
        is_free = not must_wait or _is_empty(self._admin, self._group)
        self._admin.poll(0)
        if not is_free:
            raise JoinLater
        self._admin = None


def _is_empty(admin: AdminClient, group: str) -> bool:
    """Whether the group is known to have no member."""
    futures = admin.describe_consumer_groups([group], request_timeout=DESCRIBE_TIMEOUT)
    try:
        return futures[group].result(DESCRIBE_TIMEOUT + 0.5).state in _EMPTY
    except KafkaException as error:
        return bool(error.args[0].code() == DriverError.GROUP_ID_NOT_FOUND)
    except FutureTimeout:
        return False
