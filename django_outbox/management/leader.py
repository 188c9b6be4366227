"""The report of `manage.py outbox leader`: which process leads now."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

from django.db import connections

from ..conf import settings
from ..kafka.config import watch_config
from ..kafka.watch import Watch
from ..models import OutboxRecord
from ..postgres.outbox_identity import name, read_identity
from ..settings.kafka_rules import servers_of
from ..settings.options import OutboxSettings

POLL_INTERVAL: Final = 0.05
"""Seconds between two looks at the leader topic."""


def report(alias: str) -> dict[str, Any]:
    """
    Return who writes heartbeats of this outbox now, ready for JSON.

    Waits for a heartbeat for one session time-out at most.

    Raises:
        ConfigurationError: there are no names for the election.
        KafkaUnavailable: the client could not be created.
    """
    table = OutboxRecord._meta.db_table
    identity = read_identity(connections[alias], table)
    options = name(settings.snapshot(), identity, table=table)
    return {
        "leader": _leader(options, identity.outbox if identity else ""),
        "leader_topic": options.leader_topic,
        "servers": servers_of(options.KAFKA),
        "waited": options.SESSION_TIMEOUT,
    }


def describe(found: dict[str, Any]) -> Iterator[str]:
    """Describe the report in lines."""
    yield "{leader} leads".format(**found)


def complain(found: dict[str, Any]) -> str:
    """Say that nobody leads."""
    return (
        "No heartbeat came within {waited:g} s in the topic {leader_topic}: nobody "
        "leads, or Kafka at {servers} cannot be reached from here."
    ).format(**found)


def _leader(options: OutboxSettings, outbox: str) -> str | None:
    watch = Watch(watch_config(options), topic=options.leader_topic, shard=0)
    until = time.monotonic() + options.SESSION_TIMEOUT
    with closing(watch):
        while time.monotonic() < until:
            for heartbeat in watch.heard():
                # Anyone may write to the topic, and other outboxes may share it.
                if heartbeat.outbox == outbox:
                    return heartbeat.node
            time.sleep(POLL_INTERVAL)
    return None
