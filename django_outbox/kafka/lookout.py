"""
Detects other outboxes that use the names of this one.

The owner of a leader partition reads it anyway. A standby is assigned nothing, and a
process that has not joined is not a member: they read through `Watch`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Final

from ..clock import boottime
from ..election.ports import Heartbeat
from ..election.strangers import Strangers
from ..exceptions import KafkaUnavailable
from ..message.record import Identity
from ..settings.options import OutboxSettings
from .config import watch_config
from .watch import Watch

WATCH_BACKOFF: Final = 30.0
"""Seconds after a `Watch` could not be created. With a callback for tokens an attempt
may take ten, during which the member of the group is not polled."""


class Lookout:
    """
    Signs this process's heartbeats and checks those of others; for one thread.

    Args:
        options: the settings of the outbox.
        identity: identity of this outbox; None: nothing is signed or checked.
        client_id: the property `client.id`, or nothing.
    """

    def __init__(
        self,
        options: OutboxSettings,
        *,
        identity: Callable[[], Identity | None],
        client_id: Mapping[str, str],
    ) -> None:
        self._options = options
        self._identity = identity
        self._client_id = client_id
        self._strangers = Strangers(
            identity,
            topic=options.leader_topic,
            group=options.leader_group,
            margin=options.HEARTBEAT_TIMEOUT,
            session_timeout=options.SESSION_TIMEOUT,
            # A leader reads its identity each METER_INTERVAL; one whose database does
            # not answer resigns, and reads it before it joins again.
            patience=options.METER_INTERVAL + options.DATABASE_DEADLINE,
            clock=boottime,
        )
        self._watch: Watch | None = None
        self._watch_at = 0.0
        self._joined_at: float | None = None
        self._owner_since: dict[int, float] = {}
        """When the group assigned each partition to this process."""
        self._nonces: dict[int, str] = {}
        """Of this process's heartbeats, by partition."""

    @property
    def is_in_doubt(self) -> bool:
        """Whether this outbox may have a leader in another database."""
        return self._strangers.are_in_doubt

    def joined(self) -> None:
        """Note that this process has read its identity and become a member."""
        self._joined_at = time.monotonic()

    def owns(self, shard: int) -> None:
        """Note that the group assigned a partition to this process."""
        self._owner_since[shard] = time.monotonic()

    def signed(self, heartbeat: Heartbeat, shard: int) -> Heartbeat:
        """Add to a heartbeat which outbox is led, and since when."""
        self._nonces[shard] = heartbeat.nonce
        identity = self._identity()
        if identity is None:
            return heartbeat
        return replace(heartbeat, **identity._asdict(), age=self._age(shard))

    def heard(self, heartbeat: Heartbeat, shard: int) -> None:
        """
        Check a heartbeat that this process read as owner of a partition.

        Raises:
            WrongOutbox: another outbox was there first.
            JoinLater: see `Strangers.check`.
        """
        # This process wrote it itself, perhaps before its database moved.
        if heartbeat.nonce != self._nonces.get(shard):
            self._check(heartbeat, age=self._age(shard))

    def look(self, shards: Collection[int]) -> None:
        """
        Check new heartbeats in partitions that this process does not own.

        Raises:
            WrongOutbox: another outbox leads.
            JoinLater: see `Strangers.check`.
        """
        if self._identity() is None:
            return
        if self._watch is None:
            if not shards or time.monotonic() < self._watch_at:
                return
            config = {**watch_config(self._options), **self._client_id}
            topic = self._options.leader_topic
            try:
                self._watch = Watch(config, topic=topic, shards=shards)
            except KafkaUnavailable:
                # The member of the group logs the error.
                self._watch_at = time.monotonic() + WATCH_BACKOFF
                return
        self._watch.turn_to(shards)
        for heartbeat, _ in self._watch.heard():
            self._check(heartbeat)

    def _check(self, heartbeat: Heartbeat, *, age: float | None = None) -> None:
        at = self._joined_at
        joined_for = None if at is None else time.monotonic() - at
        self._strangers.check(heartbeat, age=age, joined_for=joined_for)

    def close(self) -> None:
        """Close the consumer of a process that leaves; safe to call twice."""
        self._joined_at = None
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()

    def _age(self, shard: int) -> float:
        return time.monotonic() - self._owner_since.get(shard, 0.0)
