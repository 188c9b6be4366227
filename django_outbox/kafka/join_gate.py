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
from collections.abc import Collection, Iterable
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from contextlib import suppress
from typing import Final

from confluent_kafka.admin import AdminClient, ConsumerGroupDescription

from ..election.ports import JoinLater
from ..exceptions import KafkaUnavailable
from .client_errors import ClientErrors
from .clients import make
from .config import KafkaConfig
from .group_members import ask_for_members, members_in, shards_of

REBALANCE_TIME = 1.0
"""Seconds for the rebalance after a session has expired."""

ANSWER_WAIT: Final = 1.0
"""Seconds that a newcomer waits for an answer each time."""

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
        self._errors_before: int | None = None
        """Number of errors when this client asked the first time; None: it has not."""
        self._came_at = 0.0
        self.is_waiting = False
        """Whether the process is waiting to join."""
        self._answer: Future[ConsumerGroupDescription] | None = None
        """The pending answer about who is in the group; None once it was read."""
        self._asked_at = 0.0
        self._leaves_at = 0.0
        """When a member without an answer leaves again."""
        self._obstacle: str | None = ""

    def enter(self) -> None:
        """
        Return when joining is safe.

        Raises:
            JoinLater: not yet; call again after a moment.
        """
        if not self.is_waiting:
            self.is_waiting, self._came_at = True, time.monotonic()
        max_wait = self._session_timeout + REBALANCE_TIME
        must_wait = time.monotonic() - self._came_at < max_wait
        members = self._members(wait=ANSWER_WAIT)
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
        self._obstacle, self._leaves_at = None, time.monotonic() + ANSWER_TIMEOUT
        self._ask()

    def obstacle(self) -> str | None:
        """
        Return why a member must leave again; empty: it may lead.

        None: there is no answer yet; call again after a moment.
        """
        if self._obstacle is None:
            members = self._members(wait=0.0)
            if members is not None:
                self._obstacle = self._others(members)
            elif time.monotonic() > self._leaves_at:
                self._obstacle = "the broker does not tell who is in the leader group"
        elif self._admin is not None:
            self._admin.poll(0)
        return self._obstacle

    def close(self) -> None:
        """Drop the client; safe to call twice."""
        self._admin, self._answer, self._errors_before = None, None, None
        self._obstacle, self.is_waiting = "", False

    def _members(self, *, wait: float) -> Collection[str] | None:
        """Return who is in the group; None: the broker has not told yet."""
        answer = self._answer or self._ask()
        if is_answered := bool(wait_for([answer], wait).done):
            self._answer = None
        self._serve(self._client())
        return members_in(answer) if is_answered else None

    def _ask(self) -> Future[ConsumerGroupDescription]:
        admin = self._client()
        if self._errors_before is None:
            self._errors_before = self._errors.count
        self._answer = ask_for_members(admin, self._group)
        self._asked_at = time.monotonic()
        return self._answer

    def _serve(self, admin: AdminClient) -> None:
        """
        Serve the client, and replace it when its connections broke.

        One that has asked before its coordinator was restarted gets no answer any more:
        librdkafka 2.16 does not always connect to it again.
        """
        admin.poll(0)
        is_broken = self._errors_before not in {None, self._errors.count}
        if is_broken and time.monotonic() - self._asked_at >= ANSWER_WAIT:
            # Without a new one, the next question goes to this one.
            self._answer = self._errors_before = None
            with suppress(KafkaUnavailable):
                self._admin = self._made()

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
            self._admin = self._made()
        return self._admin

    def _made(self) -> AdminClient:
        config: KafkaConfig = {**self._config, **self._errors.callbacks}
        return make(AdminClient, config)
