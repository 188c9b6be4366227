"""Harvesters inside the test's own process, with what they tell."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from django_outbox.events import Event
from django_outbox.kafka.consumer import KafkaSource
from django_outbox.settings.options import OutboxSettings
from tests.waiting import eventually

PATIENCE = 30.0
"""Seconds to wait for anything, on a machine that does other things too."""


def fast_options(bootstrap_servers: str, **changes: Any) -> OutboxSettings:
    """Quick timing, and a leader group that no other test has."""
    group = f"harvester-{uuid4()}"
    values: dict[str, Any] = {
        "LEADER_TOPIC": group,
        "LEADER_GROUP": group,
        "SESSION_TIMEOUT": 3.0,
        "HEARTBEAT_TIMEOUT": 1.4,
        "HEARTBEAT_INTERVAL": 0.2,
        "METER_INTERVAL": 0.5,
        "KAFKA": {"bootstrap.servers": bootstrap_servers},
    }
    return OutboxSettings(**values | changes)


class Witness:
    """An observer that remembers, and can be waited for."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._news = threading.Condition()

    def __call__(self, event: Event) -> None:
        with self._news:
            self.events.append(event)
            self._news.notify_all()

    def kinds(self) -> list[str]:
        """What happened, meter readings aside."""
        return [event.kind for event in self.events if event.kind != "meter_read"]

    def wait_for(self, kind: str, *, name: str = "") -> Any:
        """The newest event of a kind, of any harvester or of one."""
        return self.wait_until(
            lambda events: next(
                (
                    event
                    for event in reversed(events)
                    if event.kind == kind and name in {"", event.name}
                ),
                None,
            )
        )

    def wait_until(self, condition: Any) -> Any:
        """What a condition on the events returns once that is true."""
        with self._news:
            assert self._news.wait_for(lambda: condition(self.events), PATIENCE), [
                event.kind for event in self.events
            ]
            return condition(self.events)


def poll_until(condition: Callable[[], object], source: KafkaSource) -> None:
    """Poll a source that has no messages until a condition holds."""

    def poll() -> None:
        assert source.poll(1, 0.1) == []

    eventually(condition, meanwhile=poll)


def has_assigned(admin: AdminClient, group: str) -> bool:
    """Whether a member of the group has a partition, as the coordinator sees it."""
    try:
        found = admin.describe_consumer_groups([group])[group].result()
    except KafkaException:
        # A group's coordinator loads it first.
        return False
    return any(m.assignment.topic_partitions for m in found.members)
