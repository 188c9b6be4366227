"""
Delays joining a consumer group until a join can harm none of its leaders.

A join starts a rebalance, which ends when every member has rejoined. Until then
the leader's commits are refused, so it cannot prove itself. Live members rejoin
within a group heartbeat; a crashed member delays the rebalance until its session
expires, which is longer than a leader stays trusted. Therefore a new process
waits for a session time-out and a bit while the group has members: sessions of
members that crashed before have expired by then. It loses nothing: when the last
member leaves or expires, the group is empty and can be joined at once.

While the group has a member with another setting SHARDS, a process does not join at
all. Of two that join at the same time, each sees the other one as soon as it is a
member itself, and leaves again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from confluent_kafka.admin import AdminClient

from ..election.ports import JoinLater
from .client_errors import ClientErrors
from .clients import make
from .config import KafkaConfig
from .group_members import members_of, shards_of

REBALANCE_TIME = 1.0
"""Seconds for the rebalance after a session has expired."""


class JoinGate:
    """
    Decides when a new process may join; for one thread.

    Args:
        config: properties of an admin client.
        group: the leader group.
        session_timeout: of the members, in seconds.
        shards: into how many this process divides the keys.
    """

    def __init__(
        self,
        config: KafkaConfig,
        *,
        group: str,
        session_timeout: float,
        shards: int = 1,
    ) -> None:
        self._config = config
        self._group = group
        self._session_timeout = session_timeout
        self._shards = shards
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
            self._admin = self._connect()
            self._came_at = time.monotonic()
        max_wait = self._session_timeout + REBALANCE_TIME
        must_wait = time.monotonic() - self._came_at < max_wait
        members = members_of(self._admin, self._group)
        self._admin.poll(0)
        if obstacle := self._others(members or ()):
            raise JoinLater(obstacle)
        if must_wait and (members is None or members):
            raise JoinLater
        self._admin = None

    def obstacle(self) -> str:
        """
        Return why a member must leave again; empty: it may lead.

        Called once this process is a member: who joins later sees it.
        """
        members = members_of(self._connect(), self._group)
        if members is None:
            return "the broker does not tell who is in the leader group"
        return self._others(members)

    def _others(self, members: Iterable[str]) -> str:
        """Describe the members that divide the keys differently, if there are any."""
        others = sorted(name for name in members if shards_of(name) != self._shards)
        if not others:
            return ""
        return (
            f"SHARDS is {self._shards} here, and the leader group has processes with "
            f"another number: {', '.join(others[:3])}. It joins when they have ended"
        )

    def _connect(self) -> AdminClient:
        config: KafkaConfig = {**self._config, **self._errors.callbacks}
        return make(AdminClient, config)
