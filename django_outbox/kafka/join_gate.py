"""
Look at a consumer group from outside, before a process joins it.

A join starts a rebalance, which ends when every member has joined it. Until
then the leader's commits are refused, so that it proves nothing. Live members
take a group heartbeat; a member that crashed holds the rebalance up until its
session expires, and that is longer than a leader stays trusted. Therefore a
newcomer leaves a group with members alone for one session time-out and a bit:
whoever had crashed before it came is forgotten by then. It loses nothing: when
the last member leaves or expires, the group is empty and can be joined at once.
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
"""Seconds that one look at a group may take."""

REBALANCE_TIME = 1.0
"""Seconds for the rebalance that follows when a session has expired."""

_EMPTY = frozenset({ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD})


class JoinGate:
    """
    Where a newcomer waits until it may join; for one thread.

    Args:
        config: of the admin client; see `config.admin_config`.
        group: the leader group.
        session_timeout: of its members, in seconds.
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
        """Whether the newcomer has come, and not gone in yet."""
        return self._admin is not None

    def enter(self) -> None:
        """
        Return once joining disturbs nobody.

        Raises:
            JoinLater: wait a moment on the doorstep, and try again.
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
