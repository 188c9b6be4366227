"""
Which process leads now: its heartbeats in the leader topic say so.

One look waits for a heartbeat. A watch stays at the topic, and its answer is at once
there, so that a page or a terminal can ask again and again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

from django.db import connections

from ..conf import settings
from ..exceptions import ConfigurationError, KafkaError
from ..kafka.config import watch_config
from ..kafka.watch import Watch
from ..models import OutboxRecord
from ..postgres.outbox_identity import read_identity, require_names
from ..settings.kafka_rules import servers_of

POLL_INTERVAL: Final = 0.05
"""Seconds between two looks at the leader topic."""
WATCH_INTERVAL: Final = 0.25
"""Seconds between two looks of a watch that stays at the topic."""
IDLE_LIMIT: Final = 60.0
"""Seconds after which a watch ends that nobody asks."""


def report(alias: str) -> dict[str, Any]:
    """
    Return who writes heartbeats of this outbox now, ready for JSON.

    Waits for a heartbeat for one session time-out at most.

    Raises:
        ConfigurationError: there are no names for the election.
        KafkaUnavailable: the client could not be created.
        django.db.Error: the database did not answer.
    """
    with closing(LeaderWatch(alias)) as watch:
        while watch.is_listening and watch.look() is None:
            time.sleep(POLL_INTERVAL)
        return {
            "leader": watch.look(),
            "shards": watch.options.SHARDS,
            "leader_topic": watch.options.leader_topic,
            "servers": servers_of(watch.options.KAFKA),
            "waited": watch.options.SESSION_TIMEOUT,
        }


def describe(found: dict[str, Any]) -> Iterator[str]:
    """Describe the report in lines."""
    yield ("{leader} leads" if found["shards"] == 1 else "leaders: {leader}").format(
        **found
    )


def complain(found: dict[str, Any]) -> str:
    """Say that nobody leads, or nobody leads one of several shards."""
    of_each = "" if found["shards"] == 1 else "of each of {shards} shards "
    return (
        f"No heartbeat {of_each}came within {{waited:g}} s in the topic "
        "{leader_topic}: nobody leads, or Kafka at {servers} cannot be reached from "
        "here."
    ).format(**found)


class LeaderWatch:
    """
    Knows the last heartbeat of one outbox; for one thread.

    Raises:
        ConfigurationError: there are no names for the election, or no brokers.
        KafkaUnavailable: the client could not be created.
        django.db.Error: the database did not answer.
    """

    def __init__(self, alias: str) -> None:
        table = OutboxRecord._meta.db_table
        identity = read_identity(connections[alias], table)
        self.options = require_names(settings.snapshot(), identity, table=table)
        if not servers_of(self.options.KAFKA):
            raise ConfigurationError("KAFKA: this process has no address of a broker.")
        self._outbox = identity.outbox if identity else ""
        self._began = time.monotonic()
        self._leaders: dict[int, tuple[str, float]] = {}
        """By shard: who leads it, and when its last heartbeat was heard."""
        shards = range(self.options.SHARDS)
        self._watch = Watch(
            watch_config(self.options), topic=self.options.leader_topic, shards=shards
        )

    @property
    def is_listening(self) -> bool:
        """Whether it is too early to say that nobody leads."""
        return time.monotonic() < self._began + self.options.SESSION_TIMEOUT

    def look(self) -> str | None:
        """
        Return who leads: `host-1`, or `host-1 (shards 0, 2), host-3 (shards 1, 3)`.

        None: no heartbeat within the session time-out, of some shard at least.

        Call it every WATCH_INTERVAL: it reads a limited number of heartbeats, and
        takes each for as recent as the call.
        """
        now = time.monotonic()
        for heartbeat, shard in self._watch.heard():
            # Anyone may write to the topic, and other outboxes may share it.
            if heartbeat.outbox == self._outbox:
                self._leaders[shard] = heartbeat.node, now
        led: dict[str, list[str]] = {}
        for shard, (node, heard_at) in sorted(self._leaders.items()):
            if now - heard_at <= self.options.SESSION_TIMEOUT:
                led.setdefault(node, []).append(str(shard))
        count = self.options.SHARDS
        if sum(map(len, led.values())) < count:
            return None
        if count == 1:
            return next(iter(led))
        return ", ".join(f"{n} (shards {', '.join(led[n])})" for n in sorted(led))

    def state(self) -> dict[str, Any]:
        """Return `leader`, or None and the `reason` why it is not known."""
        if (leader := self.look()) is not None:
            return {"leader": leader, "reason": ""}
        limit = self.options.SESSION_TIMEOUT
        reason = "listening" if self.is_listening else f"no heartbeat for {limit:g} s"
        return {"leader": None, "reason": reason}

    def close(self) -> None:
        """Close the connection to Kafka."""
        self._watch.close()


class BackgroundWatch:
    """
    Answers at once who leads; any thread may ask.

    The first question starts a thread that watches; it ends when nobody has asked for
    a minute.
    """

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._lock = threading.Lock()
        self._asked_at = 0.0
        self._is_running = False
        self._state: dict[str, Any] = {}

    def state(self) -> dict[str, Any]:
        """
        Return what `LeaderWatch.state()` said last, or why it cannot be known.

        Raises:
            django.db.Error: the watch did not run, and the database did not answer.
        """
        with self._lock:
            self._asked_at = time.monotonic()
            if not self._is_running:
                try:
                    watch = LeaderWatch(self._alias)
                except (ConfigurationError, KafkaError) as exc:
                    return {"leader": None, "reason": str(exc)}
                self._state = {"leader": None, "reason": "listening"}
                self._is_running = True
                threading.Thread(
                    target=self._run,
                    args=(watch,),
                    name="outbox-leader-watch",
                    daemon=True,
                ).start()
            return self._state

    def _run(self, watch: LeaderWatch) -> None:
        try:
            with closing(watch):
                while self._is_wanted():
                    state = watch.state()
                    with self._lock:
                        self._state = state
                    time.sleep(WATCH_INTERVAL)
        finally:
            with self._lock:
                self._is_running = False

    def _is_wanted(self) -> bool:
        with self._lock:
            return time.monotonic() - self._asked_at < IDLE_LIMIT
