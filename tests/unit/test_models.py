"""The models without a database."""

from __future__ import annotations

import uuid

import pytest
from django.db import models
from django.db.models.functions import Now

from django_outbox.models import (
    ArchivedRecord,
    ConsumerOffset,
    OutboxRecord,
    ParkedRecord,
    ProcessedMessage,
    Series,
    StagedRecord,
)

ALL = (OutboxRecord, ParkedRecord, ArchivedRecord)


def test_tables_are_named_after_the_setting() -> None:
    assert [model._meta.db_table for model in ALL] == [
        "outbox",
        "outbox_parked",
        "outbox_archive",
    ]
    assert StagedRecord._meta.db_table == "outbox_staged"
    assert Series._meta.db_table == "outbox_series"


@pytest.mark.parametrize("model", ALL)
def test_a_record_is_shown_by_id_and_topic_only(model: type[models.Model]) -> None:
    """Neither key nor value belongs in a page's title or a log line."""
    ids = {"parked_id": 7, "id": 9} if model is ParkedRecord else {"id": 7}
    record = model(**ids, kafka_topic="orders", kafka_key="k", kafka_value="v")
    assert str(record) == "7 → orders"


def test_so_is_a_staged_record_and_a_series_by_its_name() -> None:
    record = StagedRecord(staged_id=7, kafka_topic="orders", kafka_key="k")
    assert str(record) == "7 → orders"
    assert str(Series(name="order-17")) == "order-17"


def test_every_column_of_ours_has_a_default_in_the_database() -> None:
    """So that goharvest's own INSERT works."""
    goharvests = {
        *("id", "create_time", "kafka_topic", "kafka_key", "kafka_value"),
        *("kafka_header_keys", "kafka_header_values", "leader_id"),
    }
    for field in OutboxRecord._meta.concrete_fields:
        if field.name not in goharvests:
            assert field.null or field.has_db_default(), field.name


def test_filters_and_orders_of_creation_times_can_use_an_index() -> None:
    rows = OutboxRecord.objects.filter(create_time__lt=Now()).order_by("create_time")
    columns, _, conditions = str(rows.query).partition(" FROM ")
    assert "CASE" in columns
    assert "CASE" not in conditions


def test_tables_of_consumers_are_named_after_the_setting_too() -> None:
    assert ProcessedMessage._meta.db_table == "outbox_processed"
    assert ConsumerOffset._meta.db_table == "outbox_offsets"
    assert str(ProcessedMessage(consumer="billing", key="k")) == "billing: k"
    offset = ConsumerOffset(group_id="g", topic="t", partition=2, next_offset=7)
    assert str(offset) == "g: t/2 at 7"


def test_permissions_are_separate() -> None:
    codenames = {name for model in ALL for name, _label in model._meta.permissions}
    assert codenames == {
        *("view_payload", "view_live", "park_outboxrecord", "skip_outboxrecord"),
        *("release_parkedrecord", "skip_parkedrecord", "replay_archivedrecord"),
    }
    assert {name for name, _label in Series._meta.permissions} == {
        "release_series",
        "discard_series",
    }
    for model in (OutboxRecord, ParkedRecord, StagedRecord, Series):
        assert model._meta.default_permissions == ("view",)


def test_a_message_id_is_a_uuid() -> None:
    field = OutboxRecord._meta.get_field("message_id")
    assert field.to_python(str(uuid.UUID(int=1))) == uuid.UUID(int=1)
