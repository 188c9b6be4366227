"""
Rows that are in bronze twice, keys in two partitions, ids that began again.

One lake for all: each test has a topic of its own in it. It is refined three times,
the last time without a checkpoint.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from django_outbox.exceptions import ConfigurationError
from django_outbox.pipeline.lake.batch_writer import BAD_CREATION_TIME, NO_OUTBOX
from django_outbox.pipeline.pipeline_settings import PipelineSettings, build

from .lakes import Contents, FilledLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RESTORED = "2023-11-14T22:15Z"
BEFORE, AFTER = "1700000050000000", "1700000200000000"
"""Creation times in microseconds, before and after the database was restored."""


class History:
    """What the tables hold after each time."""

    def __init__(self, lake: FilledLake) -> None:
        self._lake = lake
        self._first()
        self.before = self._refined()
        settings = lake.settings
        lake.settings = replace(
            settings, epochs={"shop": (RESTORED,), "o'mall": (RESTORED,)}
        )
        self._second()
        self.after = self._refined()
        lake.lose_checkpoint("refine")
        self._put("twice", 6, key="c", first=6)
        self.at_last = self._refined()

    def _refined(self) -> Contents:
        self._lake.refine()
        return Contents(self._lake.spark, self._lake.settings)

    def _put(self, topic: str, *ids: int, **options: Any) -> None:
        self._lake.topic = topic
        self._lake.put(*ids, **options)

    def _first(self) -> None:
        put = self._put
        for _ in range(2):
            put("twice", 1, 2, 3, key="a", first=0)
            put("twice", 4, key="b", first=3)
            self._lake.put_unidentified(offset=4)
        put("grown", 1, 2, 5, partition=1, first=0)
        # The key moved to a partition with a lower number.
        put("grown", 6, 8, 7, 5, partition=0, first=0)
        put("restored", 1, 2, 3)

    def _second(self) -> None:
        put = self._put
        put("twice", 1, 2, 3, key="a", first=0)
        self._lake.put_unidentified(offset=4)
        put("twice", 5, key="a", first=5)
        # What is left of the former partition arrives a batch later.
        put("grown", 3, 4, 10, 9, partition=1, first=3)
        put("grown", 6, 2, partition=2, first=0)
        put("restored", 1, 3, 2, 2, series="again", created_at=AFTER)
        put("restored", 4, created_at=BEFORE)
        put("restored", 5, key="b", created_at=str(2**63 - 1))
        put("restored", -1, 2**63 - 1, key="forged", created_at=AFTER)


@pytest.fixture(scope="module")
def history(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> History:
    folder = tmp_path_factory.mktemp("astray")
    return History(FilledLake(spark, PipelineSettings(lake=str(folder / "lake"))))


def test_what_was_read_twice_comes_once_from_an_empty_lake_and_a_full_one(
    history: History,
) -> None:
    assert history.before.ids("silver", "twice") == [1, 2, 3, 4]
    assert history.before("latest", "twice", "key", "id") == [(b"a", 3), (b"b", 4)]
    for contents, rest in ((history.after, []), (history.at_last, [6])):
        assert contents.ids("silver", "twice") == [1, 2, 3, 4, 5, *rest]
        assert contents("latest", "twice", "key", "id") == [
            *((b"a", 5), (b"b", 4), *((b"c", id) for id in rest))
        ]
        assert contents.ids("late", "twice") == []
        assert len(contents("quarantine", "twice", "offset")) == 1


def test_each_partition_of_a_grown_topic_has_an_order_of_its_own(
    history: History,
) -> None:
    assert history.before.ids("silver", "grown") == [1, 2, 5, 6, 8]
    assert history.before("late", "grown", "id", "mark") == [(7, 8)]
    assert history.before("latest", "grown", "id", "partition") == [(8, 0)]
    for contents in (history.after, history.at_last):
        assert contents.ids("silver", "grown") == [1, 2, 5, 6, 8, 10]
        assert contents("late", "grown", "id", "mark") == [
            *((3, 5), (4, 5), (7, 8), (9, 10))
        ]
        assert contents("latest", "grown", "id", "partition") == [(10, 1)]


def test_ids_that_began_again_come_behind_those_of_the_former_epoch(
    history: History,
) -> None:
    contents = history.at_last
    assert contents.ids("silver", "restored") == [1, 1, 2, 3, 3, 5]
    assert contents("late", "restored", "id", "mark") == [(2, 3), (4, 3)]
    assert contents("latest", "restored", "id", "message_id") == [
        *((3, "again-3"), (5, "shop-5"))
    ]


def test_an_impossible_creation_time_is_in_quarantine(history: History) -> None:
    assert (b"b", BAD_CREATION_TIME) in history.at_last(
        "quarantine", "restored", "key", "reason"
    )
    assert history.at_last("latest", "restored", "key", "created_at")[0] == (
        b"b",
        None,
    )


def test_ids_that_no_outbox_gives_out_are_in_quarantine(history: History) -> None:
    """With an epoch the rank of the highest one would be no number of 64 bits."""
    found = history.at_last("quarantine", "restored", "key", "reason")
    assert [row for row in found if row[0] == b"forged"] == [(b"forged", NO_OUTBOX)] * 2


@pytest.mark.parametrize(
    "moments", ["2026-01-31T12:00Z", ["2026-01-31T12:00"], ["soon"], [5]]
)
def test_an_epoch_begins_at_a_complete_time(moments: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"epochs: .* of 'shop' must be in"):
        build({"lake": "l", "epochs": {"shop": moments}})
