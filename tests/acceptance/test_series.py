"""What is staged: dates and series, with the leader killed on the way."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from uuid import UUID

import pytest
from confluent_kafka import Message
from django.core.management import call_command
from django.db import connections, transaction
from psycopg.conninfo import conninfo_to_dict
from pytest_django import DjangoDbBlocker

from django_outbox import open_series, stash, stash_delayed
from django_outbox.models import ParkedRecord, StagedRecord

from ..machine import nightly
from ..services import Topics
from ..waiting import eventually
from .auditing import read
from .harvesters import SESSION_TIMEOUT, Harvesters
from .tables import OutboxTable

SOON = 2.0
"""Seconds after its time in which a message arrives, on a busy machine."""


@pytest.fixture(autouse=True)
def own_django(
    table: OutboxTable, django_db_blocker: DjangoDbBlocker
) -> Iterator[None]:
    """Let this process's Django write to the harvesters' database."""
    server = conninfo_to_dict(table.url)
    names = {"HOST": "host", "PORT": "port", "USER": "user", "PASSWORD": "password"}
    usual = connections["default"]
    values = {name: server.get(key, "") for name, key in names.items()}
    changed = {**usual.settings_dict, **values, "NAME": server["dbname"]}
    connections["default"] = type(usual)(changed, "default")
    with django_db_blocker.unblock():
        yield
        connections["default"].close()
    connections["default"] = usual


class App:
    """Stashes, each message in a transaction of its own."""

    def __init__(self, topic: str) -> None:
        self.topic = topic

    def series(self, name: str, *keys: str, expected: int | None = None) -> list[UUID]:
        ids = []
        for key in keys:
            with transaction.atomic(), open_series(name, expected=expected) as series:
                ids.append(series.stash(self.topic, key=key, value=None))
        return ids

    def later(self, key: str, seconds: float) -> datetime:
        """Stage a message; the moment that the database worked out."""
        with transaction.atomic():
            stash_delayed(
                self.topic, key=key, value=None, not_before=timedelta(seconds=seconds)
            )
        moment = StagedRecord.objects.get(kafka_key=key).not_before
        assert moment is not None
        return moment


def keys(messages: list[Message]) -> list[str]:
    return [read(message).key for message in messages]


def lateness(messages: list[Message], key: str, due: datetime) -> float:
    """Seconds from the time of a message to its being sent."""
    (message,) = [m for m in messages if read(m).key == key]
    _, milliseconds = message.timestamp()
    # Kafka's time has no more digits.
    return (milliseconds - int(due.timestamp() * 1000)) / 1000


@pytest.mark.parametrize(
    "delivery", [pytest.param("at-least-once", marks=nightly), "exactly-once"]
)
def test_what_is_staged_arrives_in_its_time_also_after_a_crash(
    harvesters: Harvesters, topics: Topics, delivery: str
) -> None:
    app = App(topics.create())
    harvesters.environment = {**harvesters.environment, "OUTBOX_DELIVERY": delivery}
    leader, standby = harvesters.start_ready(2)

    # In peace: a date, and a series of several transactions.
    due = app.later("later", 1.5)
    ids = app.series("order-1", "b", "a", expected=4)
    with transaction.atomic():
        stash(app.topic, key="b", value=None)
    messages = topics.read(app.topic, at_least=2)
    assert keys(messages) == ["b", "later"]
    assert 0 <= lateness(messages, "later", due) < SOON
    ids += app.series("order-1", "d", "c", expected=4)
    arrived = [read(m) for m in topics.read(app.topic, at_least=6)[2:]]
    assert [a.key for a in arrived] == ["b", "a", "d", "c"]
    assert [a.message_id for a in arrived] == [str(i) for i in ids]
    first_id = arrived[0].id
    assert [a.id for a in arrived] == [first_id + n for n in range(4)]

    # A crash, before anything of this has come to its end.
    app.series("order-2", "x", "y", expected=3)
    with transaction.atomic():
        open_series("order-3", timeout=1)
    app.series("order-3", "q", "p")
    due = app.later("after the crash", 1.0)
    crashed_at = leader.kill()
    app.series("order-2", "z", expected=3)
    expired = standby.wait_for("series_expired", after=crashed_at)
    assert (expired["series"], expired["messages"]) == ("order-3", 2)
    assert expired["action"] == "park"
    assert expired["leader_id"] == standby.all("leader_acquired")[-1]["leader_id"]
    messages = topics.read(app.topic, at_least=10)[6:]
    found = keys(messages)
    assert sorted(found) == ["after the crash", "x", "y", "z"]
    assert [key for key in found if key in "xyz"] == ["x", "y", "z"]
    takeover = SESSION_TIMEOUT + 3 + SOON
    assert 0 <= lateness(messages, "after the crash", due) < takeover

    # What was parked can be sent after all.
    parked = ParkedRecord.objects.order_by("id").values_list("kafka_key", flat=True)
    assert list(parked) == ["q", "p"]
    call_command("outbox", "release", "--all", verbosity=0)
    assert keys(topics.read(app.topic, at_least=12))[10:] == ["q", "p"]
    eventually(lambda: not StagedRecord.objects.exists(), timeout=SOON)
