"""
Detects other outboxes that use the names of this one.

The owner of the leader partition reads it anyway. A standby is assigned nothing,
and a process that has not joined is not a member: they read through `Watch`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from ..election.ports import Heartbeat
from ..election.strangers import Strangers
from ..exceptions import KafkaUnavailable
from ..message.record import Identity
from ..settings.options import OutboxSettings
from .config import watch_config
from .watch import Watch


class Lookout:
    """
    Signs this process's heartbeats and checks those of others; for one thread.

    Args:
        options: the settings of the outbox.
        shard: the partition whose owner leads.
        identity: identity of this outbox; None: nothing is signed or checked.
        client_id: the property `client.id`, or nothing.
    """

    def __init__(
        self,
        options: OutboxSettings,
        *,
        shard: int,
        identity: Callable[[], Identity | None],
        client_id: Mapping[str, str],
    ) -> None:
        self._options = options
        self._shard = shard
        self._identity = identity
        self._client_id = client_id
        self._strangers = Strangers(
            identity,
            topic=options.leader_topic,
            group=options.leader_group,
            margin=options.HEARTBEAT_TIMEOUT,
        )
        self._watch: Watch | None = None
        self._owner_since = 0.0
        self._nonce = ""

    def owns(self) -> None:
        """Note that the group assigned the partition to this process."""
        self._owner_since = time.monotonic()

    def signed(self, heartbeat: Heartbeat) -> Heartbeat:
        """Add to a heartbeat which outbox is led, and since when."""
        self._nonce = heartbeat.nonce
        identity = self._identity()
        if identity is None:
            return heartbeat
        return replace(heartbeat, **identity._asdict(), age=self._age())

    def heard(self, heartbeat: Heartbeat) -> None:
        """
        Check a heartbeat that this process read as owner of the partition.

        Raises:
            WrongOutbox: another outbox was there first.
        """
        # This process wrote it itself, perhaps before its database moved.
        if heartbeat.nonce != self._nonce:
            self._strangers.check(heartbeat, age=self._age())

    def look(self) -> None:
        """
        Check new heartbeats while this process does not own the partition.

        Raises:
            WrongOutbox: another outbox leads.
        """
        if self._identity() is None:
            return
        if self._watch is None:
            config = {**watch_config(self._options), **self._client_id}
            topic = self._options.leader_topic
            try:
                self._watch = Watch(config, topic=topic, shard=self._shard)
            except KafkaUnavailable:
                # The next call retries; the member of the group logs the error.
                return
        for heartbeat in self._watch.heard():
            self._strangers.check(heartbeat)

    def close(self) -> None:
        """Close the consumer; safe to call twice."""
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()

    def _age(self) -> float:
        return time.monotonic() - self._owner_since
