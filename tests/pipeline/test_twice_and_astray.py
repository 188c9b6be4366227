"""Rows that are in bronze twice, keys in two partitions, ids that began again."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from django_outbox.exceptions import ConfigurationError
from django_outbox.pipeline.lake.batch_writer import BAD_CREATION_TIME
from django_outbox.pipeline.pipeline_settings import PipelineSettings, build

from .lakes import Contents, FilledLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> FilledLake:
    return FilledLake(spark, PipelineSettings(lake=str(tmp_path / "lake")))


def test_what_was_read_twice_comes_once_from_an_empty_lake_and_a_full_one(
    lake: FilledLake,
) -> None:
    for _ in range(2):
        lake.put(1, 2, 3, key="a", first=0)
        lake.put(4, key="b", first=3)
        lake.put_unidentified(offset=4)
    lake.refine()
    lake.put(1, 2, 3, key="a", first=0)
    lake.put_unidentified(offset=4)
    lake.put(5, key="a", first=5)
    lake.refine()
    lake.lose_checkpoint("refine")
    lake.put(6, key="c", first=6)
    lake.refine()
    contents = Contents(lake.spark, lake.settings)
    assert contents.ids("silver", lake.topic) == [1, 2, 3, 4, 5, 6]
    assert contents.ids("late", lake.topic) == []
    assert contents("latest", lake.topic, "key", "id") == [
        *((b"a", 5), (b"b", 4), (b"c", 6))
    ]
    assert contents.count("quarantine") == 1


def test_each_partition_of_a_grown_topic_has_an_order_of_its_own(
    lake: FilledLake,
) -> None:
    lake.put(1, 2, 5, partition=1, first=0)
    # The key moved to a partition with a lower number.
    lake.put(6, 8, 7, 5, partition=0, first=0)
    lake.refine()
    contents = Contents(lake.spark, lake.settings)
    assert contents.ids("silver", lake.topic) == [1, 2, 5, 6, 8]
    assert contents("late", lake.topic, "id", "mark") == [(7, 8)]
    assert contents("latest", lake.topic, "id", "partition") == [(8, 0)]

    # What is left of the former partition arrives a batch later.
    lake.put(3, 4, 10, 9, partition=1, first=3)
    lake.put(6, 2, partition=2, first=0)
    lake.refine()
    contents = Contents(lake.spark, lake.settings)
    assert contents.ids("silver", lake.topic) == [1, 2, 5, 6, 8, 10]
    assert contents("late", lake.topic, "id", "mark") == [
        *((3, 5), (4, 5), (7, 8), (9, 10))
    ]
    assert contents("latest", lake.topic, "id", "partition") == [(10, 1)]


def test_ids_that_began_again_come_behind_those_of_the_former_epoch(
    lake: FilledLake,
) -> None:
    lake.put(1, 2, 3)
    lake.refine()
    settings = lake.settings
    began = datetime.fromtimestamp(1_700_000_100, UTC).isoformat()
    lake.settings = replace(settings, epochs={"shop": (began,), "o'mall": (began,)})
    created = "1700000200000000"
    lake.put(1, 3, 2, 2, series="again", created_at=created)
    lake.put(4, created_at="1700000050000000")
    lake.put(5, key="b", created_at=str(2**63 - 1))
    lake.refine()
    contents = Contents(lake.spark, lake.settings)
    assert contents.ids("silver", lake.topic) == [1, 1, 2, 3, 3, 5]
    assert contents("quarantine", lake.topic, "key", "reason") == [
        (b"b", BAD_CREATION_TIME)
    ]
    assert contents("late", lake.topic, "id", "mark") == [(2, 3), (4, 3)]
    assert contents("latest", lake.topic, "id", "message_id") == [
        *((3, "again-3"), (5, "shop-5"))
    ]


@pytest.mark.parametrize(
    "moments", ["2026-01-31T12:00Z", ["2026-01-31T12:00"], ["soon"], [5]]
)
def test_an_epoch_begins_at_a_complete_time(moments: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"epochs: .* of 'shop' must be in"):
        build({"lake": "l", "epochs": {"shop": moments}})
