"""Archived records that are sent again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from django_outbox.models import ArchivedRecord, OutboxRecord
from django_outbox.operations import replaying
from django_outbox.operations.replaying import Selection, matches, replay

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)


def archived(number: int, *, ago: timedelta = HOUR / 2, **columns: Any) -> Any:
    values = {"kafka_topic": "orders", "kafka_key": "k", "kafka_value": str(number)}
    return ArchivedRecord.objects.create(
        id=number, archived_at=timezone.now() - ago, **{**values, **columns}
    )


def last_hour(**chosen: Any) -> Selection:
    now = timezone.now()
    return Selection(since=now - HOUR, until=now, **chosen)


def test_a_record_is_sent_again_as_a_new_row_with_its_message_id() -> None:
    unused = 1_000_000  # the sequence of the ids does not come to it
    old = archived(
        unused, kafka_header_keys=["h"], kafka_header_values=["v"], kafka_partition=2
    )
    old.refresh_from_db()
    (sent,) = replay("default", last_hour())
    assert sent["id"] == unused
    new = OutboxRecord.objects.get()
    for column in (
        *("kafka_topic", "kafka_key", "kafka_value", "kafka_partition"),
        *("kafka_header_keys", "kafka_header_values", "message_id", "cluster_id"),
    ):
        assert getattr(new, column) == getattr(old, column), column
    assert new.pk != unused
    assert (new.attempts, new.leader_id) == (0, None)
    assert new.create_time > old.archived_at


def test_times_topic_and_id_choose() -> None:
    archived(1, ago=2 * HOUR)
    archived(2, ago=HOUR / 2)
    archived(3, ago=HOUR / 3, kafka_topic="invoices")
    archived(4, ago=HOUR / 4)
    chosen = {
        (2, 3, 4): last_hour(),
        (2, 4): last_hour(topic="orders"),
        (4,): last_hour(id=4),
        (): last_hour(id=1),
    }
    for ids, selection in chosen.items():
        found, is_more = matches("default", selection)
        assert tuple(row["id"] for row in found) == ids
        assert not is_more


def test_another_record_with_the_same_id_is_not_sent() -> None:
    """Ids begin again in a database that was restored."""
    archived(5, ago=HOUR / 2)
    archived(5, ago=HOUR / 3, kafka_topic="invoices")
    (sent,) = replay("default", last_hour(topic="orders"))
    assert sent["kafka_topic"] == OutboxRecord.objects.get().kafka_topic == "orders"


def test_they_go_in_the_order_of_the_first_time() -> None:
    archived(3, ago=HOUR / 2)
    archived(2, ago=HOUR / 3)
    archived(1, ago=HOUR / 4)
    replay("default", last_hour())
    values = OutboxRecord.objects.order_by("id").values_list("kafka_value", flat=True)
    assert list(values) == ["3", "2", "1"]


def test_one_replay_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaying, "MAX_REPLAYED", 2)
    for number in range(3):
        archived(number, ago=HOUR / (number + 2))
    assert matches("default", last_hour())[1]
    assert [row["id"] for row in replay("default", last_hour())] == [0, 1]
    assert OutboxRecord.objects.count() == 2
