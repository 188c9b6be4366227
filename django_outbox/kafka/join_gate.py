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
member itself, and leaves again. A member may lead other shards meanwhile, so it does
not wait for the broker's answer, and the client that asks exists before it joins.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Final

from confluent_kafka.admin import AdminClient, ConsumerGroupDescription

from ..election.ports import JoinLater
from .client_errors import ClientErrors
from .clients import make
from .config import KafkaConfig
from .group_members import ask_for_members, members_in, shards_of

REBALANCE_TIME = 1.0
"""Seconds for the rebalance after a session has expired."""

ANSWER_TIMEOUT: Final = 30.0
"""Seconds without an answer after which a member leaves again."""


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
        self.is_waiting = False
        """Whether the process is waiting to join."""
        self._answer: Future[ConsumerGroupDescription] | None = None
        """To the question of a member, until it was read."""
        self._asked_at = 0.0
        self._obstacle: str | None = ""

    def enter(self) -> None:
        """
        Return when joining is safe.

        Raises:
            JoinLater: not yet; call again after a moment.
        """
        admin = self._client()
        if not self.is_waiting:
            self.is_waiting, self._came_at = True, time.monotonic()
        max_wait = self._session_timeout + REBALANCE_TIME
        must_wait = time.monotonic() - self._came_at < max_wait
        members = members_in(ask_for_members(admin, self._group))
        admin.poll(0)
        if obstacle := self._others(members or ()):
            raise JoinLater(obstacle)
        if must_wait and (members is None or members):
            raise JoinLater
        self.is_waiting = False

    def ask(self) -> None:
        """
        Ask who is in the group, for `obstacle`; do not wait.

        Called once this process is a member: who joins later sees it.
        """
        self._obstacle, self._asked_at = None, time.monotonic()
        self._answer = ask_for_members(self._client(), self._group)

    def obstacle(self) -> str | None:
        """
        Return why a member must leave again; empty: it may lead.

        None: there is no answer yet; call again after a moment.
        """
        if self._admin is not None:
            self._admin.poll(0)
        if self._obstacle is None and self._answer is not None:
            self._obstacle = self._read(self._answer)
        return self._obstacle

    def _read(self, answer: Future[ConsumerGroupDescription]) -> str | None:
        """Read the answer to a member's question; ask again if it tells nothing."""
        if answer.done():
            members = members_in(answer)
            if members is not None:
                return self._others(members)
            self._answer = ask_for_members(self._client(), self._group)
        if time.monotonic() - self._asked_at > ANSWER_TIMEOUT:
            return "the broker does not tell who is in the leader group"
        return None

    def close(self) -> None:
        """Drop the client; safe to call twice."""
        self._admin, self._answer = None, None
        self._obstacle, self.is_waiting = "", False

    def _others(self, members: Iterable[str]) -> str:
        """Describe the members that divide the keys differently, if there are any."""
        others = sorted(name for name in members if shards_of(name) != self._shards)
        if not others:
            return ""
        return (
            f"SHARDS is {self._shards} here, and the leader group has processes with "
            f"another number: {', '.join(others[:3])}. It joins when they have ended"
        )

    def _client(self) -> AdminClient:
        if self._admin is None:
            config: KafkaConfig = {**self._config, **self._errors.callbacks}
            self._admin = make(AdminClient, config)
        return self._admin
