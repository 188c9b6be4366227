"""
Topics that were deleted and created again, and checkpoints that were lost.

One lake for all: a pipeline to which all of it happens, one after the other.
Each test looks at what bronze held then.
"""

from __future__ import annotations

import shutil
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from uuid import uuid4

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from django_outbox.exceptions import (
    ConfigurationError,
    OutboxError,
    RecordsDeleted,
    TopicMissing,
    TopicRecreated,
)
from django_outbox.pipeline.__main__ import main
from django_outbox.pipeline.lake import tables
from django_outbox.pipeline.lake.topic_repair import repair
from django_outbox.pipeline.lake.topic_reset import reset
from django_outbox.pipeline.pipeline_run import Hooks, run_every, run_once
from django_outbox.pipeline.pipeline_settings import PipelineSettings

from ..services import Topics
from ..waiting import eventually
from .lakes import Sender, outbox_headers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from django_outbox.pipeline.query_progress import Reading

Ids: TypeAlias = dict[str, list[int]]
"""The ids of the messages in bronze, by topic."""

LONG_AGO = 1_600_000_000_000
"""Timestamp of old records, in milliseconds."""


def admin_of(topics: Topics) -> AdminClient:
    return AdminClient({"bootstrap.servers": topics.servers, "log_level": 0})


def delete(admin: AdminClient, topic: str) -> None:
    admin.delete_topics([topic])[topic].result(timeout=60)
    eventually(
        lambda: topic not in admin.list_topics(timeout=60).topics,
        what=f"the end of {topic}",
        interval=0.01,
    )


class History:
    """What happened to the topics and the checkpoint, and what bronze held then."""

    def __init__(
        self, spark: SparkSession, topics: Topics, settings: PipelineSettings
    ) -> None:
        self.spark, self.topics = spark, topics
        self.sender = Sender(topics.servers)
        self._admin = admin_of(topics)
        self.grown, self.shrunk = topics.create(), topics.create()
        self.stays = topics.create(partitions=2)
        self.dated = topics.create(config={"retention.ms": "-1"})
        names = (self.grown, self.shrunk, self.dated, self.stays)
        self.settings = replace(settings, topics=names)
        self.sender.send(self.grown, 1, 2, 3)
        self.sender.send(self.shrunk, 1, 2, 3)
        self.sender.send(self.stays, 1, 2, partition=1)
        Sender(topics.servers, timestamp=LONG_AGO).send(self.dated, 1, 2)
        self.sender.send(self.dated, 3, 4)
        self.run()
        self.at_first = self.ids()
        self._grow()
        self.after_growth = self.ids()
        self._shrink()
        self.after_shrinking = self.ids()
        self._start_at_times()
        self.after_times = self.ids()
        self._lose_rows()
        self.after_repair = self.ids()
        shutil.rmtree(self.settings.checkpoint(""))
        self.lines_of_new_checkpoint = self.run()
        self.after_loss = self.ids()

    def _grow(self) -> None:
        self.create_again(self.grown, 11, 12, 13, 14, 15)
        self.sender.send(self.stays, 3)
        self.error_of_grown = self.error()
        self.planned = self.reset(self.grown, dry_run=True)
        self.error_after_dry_run = self.error()
        self.while_stopped = self.ids()
        self.ranges_of_grown = self.reset(self.grown)
        self.lines_of_reset = self.run()
        self.lines_after_reset = self.run()

    def _shrink(self) -> None:
        self.create_again(self.shrunk, 21)
        self.error_without_ids = self.error(topic_ids=False)
        self.error_of_shrunk = self.error()
        self.ranges_of_shrunk = self.reset(self.shrunk)
        self.run()

    def _start_at_times(self) -> None:
        """Leave a transaction open while the topic is started over."""
        topic = self.dated
        producer = self.sender.producer(**{"transactional.id": topic})
        producer.init_transactions(10)
        producer.begin_transaction()
        producer.produce(topic, key="k", value="{}", headers=outbox_headers(5))
        assert producer.flush(10) == 0
        self.sender.send(topic, 6)
        old = datetime.fromtimestamp(LONG_AGO / 1000 + 1, tz=UTC)
        self.ranges_since_old = self.reset(topic, since=old, dry_run=True)
        tomorrow = datetime.now(UTC) + timedelta(days=1)
        self.ranges_since_tomorrow = self.reset(topic, since=tomorrow)
        producer.commit_transaction(10)
        self.run()

    def _lose_rows(self) -> None:
        bronze = tables.name(self.settings, "bronze")
        lost = f"topic = '{self.dated}' AND offset IN (0, 2, 3)"
        self.spark.sql(f"DELETE FROM {bronze} WHERE {lost}")
        # Not read by ingest yet.
        self.sender.send(self.dated, 7)
        self.repaired = [
            repair(self.spark, self.settings, self.dated, **of)
            for of in ({"partition": 0, "first": 1, "last": 2}, {}, {})
        ]

    def run(self, *, topic_ids: bool = True) -> list[str]:
        """Run ingest to the end, and return the lines that it reports."""
        lines: list[str] = []
        run_once(
            self.spark,
            replace(self.settings, topic_ids=topic_ids),
            stop=threading.Event(),
            steps=("ingest",),
            hooks=Hooks(report=lines.append),
        )
        return lines

    def error(self, *, topic_ids: bool = True) -> OutboxError:
        with pytest.raises(OutboxError) as caught:
            self.run(topic_ids=topic_ids)
        return caught.value

    def create_again(self, topic: str, *ids: int) -> None:
        delete(self._admin, topic)
        self.topics.create(topic)
        self.sender.send(topic, *ids)

    def reset(
        self, topic: str, *, since: datetime | None = None, dry_run: bool = False
    ) -> list[tuple[int, int, int]]:
        ranges = reset(self.spark, self.settings, topic, since=since, dry_run=dry_run)
        assert {part.topic for part in ranges} == {topic}
        return [(part.partition, part.start, part.end) for part in ranges]

    def ids(self) -> Ids:
        found: Ids = {topic: [] for topic in self.settings.topics}
        for row in tables.read(self.spark, self.settings, "bronze").collect():
            headers = {header["key"]: header["value"] for header in row["headers"]}
            found[row["topic"]].append(int(headers["outbox-id"]))
        return {topic: sorted(ids) for topic, ids in found.items()}


@pytest.fixture(scope="module")
def history(
    spark: SparkSession, topics: Topics, tmp_path_factory: pytest.TempPathFactory
) -> History:
    settings = PipelineSettings(
        lake=str(tmp_path_factory.mktemp("reset") / "lake"),
        kafka={"bootstrap.servers": topics.servers},
    )
    return History(spark, topics, settings)


def test_a_new_topic_that_has_grown_past_the_old_one_is_read_from_its_start(
    history: History,
) -> None:
    """Spark would go on at the old offset, and skip the first three records."""
    topic = history.grown
    assert isinstance(history.error_of_grown, TopicRecreated)
    text = str(history.error_of_grown)
    assert text.startswith(f"Deleted and created again: {topic} has the id ")
    assert f"Run `reset {topic}`" in text
    assert str(history.error_after_dry_run) == text
    assert history.while_stopped == history.at_first
    assert history.planned == history.ranges_of_grown == [(0, 0, 5)]
    assert history.lines_of_reset == ["Ingest begins where `reset` has set it."]
    assert history.lines_after_reset == []
    assert history.after_growth == {
        **history.at_first,
        topic: [1, 2, 3, 11, 12, 13, 14, 15],
        history.stays: [1, 2, 3],
    }


def test_a_new_topic_that_is_shorter_is_read_from_its_start(history: History) -> None:
    topic = history.shrunk
    assert isinstance(history.error_without_ids, RecordsDeleted)
    text = str(history.error_without_ids)
    assert f"{topic}-0 offset was changed from 3 to 1" in text
    assert "`reset TOPIC`" in text
    assert "failOnDataLoss" not in text
    assert isinstance(history.error_of_shrunk, TopicRecreated)
    assert history.ranges_of_shrunk == [(0, 0, 1)]
    expected = {**history.after_growth, topic: [1, 2, 3, 21]}
    assert history.after_shrinking == expected


def test_a_reset_begins_at_a_time_and_skips_no_open_transaction(
    history: History,
) -> None:
    assert history.ranges_since_old == [(0, 2, 4)]
    # Offset 4 is the first record of the open transaction.
    assert history.ranges_since_tomorrow == [(0, 4, 4)]
    expected = {**history.after_shrinking, history.dated: [1, 2, 3, 4, 5, 6]}
    assert history.after_times == expected


def test_a_repair_appends_what_is_missing_and_nothing_else(history: History) -> None:
    assert history.repaired == [{0: 1}, {0: 2}, {0: 0}]
    assert history.after_repair == history.after_times


def test_a_lost_checkpoint_is_told_and_everything_is_read_again(
    history: History,
) -> None:
    (line,) = history.lines_of_new_checkpoint
    assert line.startswith("bronze has rows, but ingest has no checkpoint")
    in_kafka = {
        history.grown: [11, 12, 13, 14, 15],
        history.shrunk: [21],
        history.dated: [1, 2, 3, 4, 5, 6, 7],
        history.stays: [1, 2, 3],
    }
    assert history.after_loss == {
        topic: sorted(history.after_repair[topic] + ids)
        for topic, ids in in_kafka.items()
    }


def test_a_topic_that_is_not_read_is_not_reset(history: History) -> None:
    with pytest.raises(ConfigurationError, match="does not read 'unknown', only"):
        history.reset("unknown")


def test_a_topic_that_was_deleted_is_dropped_by_a_reset(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """With a pattern there is no list that it could be taken from."""
    begin = f"test-{uuid4()}"
    stays, goes = (topics.create(f"{begin}-{end}") for end in ("stays", "goes"))
    settings = PipelineSettings(
        lake=str(tmp_path),
        kafka={"bootstrap.servers": topics.servers},
        topic_pattern=f"{begin}-.*",
    )
    sender = Sender(topics.servers)
    sender.send(stays, 1)
    sender.send(goes, 1)
    ingest(spark, settings)
    delete(admin_of(topics), goes)
    sender.send(stays, 2)
    with pytest.raises(RecordsDeleted, match="and drops a topic that was deleted"):
        ingest(spark, settings)
    with pytest.raises(TopicMissing):
        reset(spark, settings, f"{begin}-unknown")

    assert reset(spark, settings, goes) == []
    ingest(spark, settings)
    assert in_bronze(spark, settings) == [(goes, 0), (stays, 0), (stays, 1)]


def test_a_topic_that_is_added_without_its_first_records_needs_a_reset(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    first, added = topics.create(), topics.create()
    settings = PipelineSettings(
        lake=str(tmp_path),
        kafka={"bootstrap.servers": topics.servers},
        topics=(first,),
    )
    sender = Sender(topics.servers)
    sender.send(first, 1)
    sender.send(added, 1, 2, 3)
    admin = admin_of(topics)
    places = [TopicPartition(added, 0, 2)]
    for done in admin.delete_records(places).values():
        done.result(timeout=60)
    ingest(spark, settings)
    settings = replace(settings, topics=(first, added))
    expected = f"partition 0 of {added} yet, .* before offset 2. Run `reset {added}`"
    with pytest.raises(RecordsDeleted, match=expected):
        ingest(spark, settings)

    assert [str(part) for part in reset(spark, settings, added)] == [
        f"{added} 0: from offset 2 to 3, 1 offsets"
    ]
    ingest(spark, settings)
    assert in_bronze(spark, settings) == sorted([(added, 2), (first, 0)])


def ingest(spark: SparkSession, settings: PipelineSettings) -> None:
    run_once(spark, settings, stop=threading.Event(), steps=("ingest",))


def in_bronze(spark: SparkSession, settings: PipelineSettings) -> list[tuple[str, int]]:
    """Return topic and offset of all rows, sorted."""
    rows = tables.read(spark, settings, "bronze").collect()
    return sorted((row["topic"], row["offset"]) for row in rows)


def test_offsets_to_repair_need_a_partition(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["repair", "orders", "--lake", "lake", "--from", "3"]
    assert main(arguments) == 2
    assert "add --partition N" in capsys.readouterr().err


def test_a_running_pipeline_notices_a_new_topic(history: History) -> None:
    stop = threading.Event()

    def observe(_: Reading) -> None:
        history.create_again(history.grown, 31)
        stop.set()

    history.sender.send(history.grown, 16)
    with pytest.raises(TopicRecreated, match=history.grown):
        run_every(
            history.spark,
            history.settings,
            # The next batch would begin too late to notice.
            seconds=3600,
            stop=stop,
            observers=[observe],
            steps=("ingest",),
        )
    assert not history.spark.streams.active
