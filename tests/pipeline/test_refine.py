"""
Bronze to silver, late, quarantine and latest, on a real Kafka and Delta.

One lake for all: each test has a topic of its own in it, writes to it before
the pipeline runs and again between its two runs.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from django_outbox.pipeline.lake import tables
from django_outbox.pipeline.lake.records import typed
from django_outbox.pipeline.pipeline_run import run_once
from django_outbox.pipeline.pipeline_settings import PipelineSettings
from django_outbox.pipeline.query_progress import Reading

from ..services import Topics
from .lakes import Contents, Sender

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "status STRING NOT NULL, total INT"


class History:
    """Sends what each test is about, and keeps what the tables hold then."""

    def __init__(
        self, spark: SparkSession, topics: Topics, settings: PipelineSettings
    ) -> None:
        self.spark = spark
        self._sender = Sender(topics.servers)
        self._names: dict[str, str] = {}
        self._create = topics.create
        self._first()
        self.settings = replace(
            settings,
            topics=tuple(self._names.values()),
            schemas={self.topic("payloads"): SCHEMA},
            typed_tables=True,
        )
        self.readings: list[Reading] = []
        self._run()
        self.before = Contents(spark, self.settings)
        self._second()
        self._run()
        self.after = Contents(spark, self.settings)

    def topic(self, name: str) -> str:
        if name not in self._names:
            # A key in two partitions needs as many.
            self._names[name] = self._create(partitions=1 + (name == "partitions"))
        return self._names[name]

    def _run(self) -> None:
        run_once(
            self.spark,
            self.settings,
            stop=threading.Event(),
            observers=[self.readings.append],
        )

    def _first(self) -> None:
        send, topic = self._sender.send, self.topic
        send(topic("copies"), 1, 2, 2, 3, 1)
        send(topic("disorder"), 1, 5, 3, 3)
        send(topic("deleted"), 1, key="a", value="old")
        send(topic("deleted"), 2, key="a", value=None)
        send(topic("deleted"), 3, key="b", value=None)
        send(topic("no key"), 7, 5, 7, key=None)
        send(topic("sources"), 1, 2)
        send(topic("sources"), 1, 2, source="mall")
        send(topic("partitions"), 1, 2, 5, partition=0)
        send(topic("partitions"), 3, 2, 4, partition=1)
        self._sender.send_in_transactions(topic("aborted"), ids=[1, 2, 3], bad=2)
        self._sender.send_unidentified(topic("payloads"), "no headers")
        for id, value in enumerate(
            (
                '{"status": "placed", "total": 3}',
                '{"status": "placed", "total": "three"}',
                '{"total": 3}',
                "not JSON",
                None,
            ),
            start=1,
        ):
            send(topic("payloads"), id, value=value)
        send(topic("failover"), 1, 2, 3)

    def _second(self) -> None:
        send, topic = self._sender.send, self.topic
        send(topic("copies"), 3, 2, 4)
        send(topic("disorder"), 4, 3, 6)
        send(topic("deleted"), 4, key="a", value="new")
        send(topic("no key"), 5, 9, key=None)
        send(topic("sources"), 2, source="mall")
        send(topic("failover"), 2, message_id="another")


@pytest.fixture(scope="module")
def history(
    spark: SparkSession, topics: Topics, tmp_path_factory: pytest.TempPathFactory
) -> History:
    settings = PipelineSettings(
        lake=str(tmp_path_factory.mktemp("history") / "lake"),
        kafka={"bootstrap.servers": topics.servers},
        batch_files=20,
    )
    return History(spark, topics, settings)


def test_each_record_is_in_silver_once_however_often_it_was_sent(
    history: History,
) -> None:
    topic = history.topic("copies")
    assert len(history.after("bronze", topic, "offset")) == 8
    assert history.before.ids("silver", topic) == [1, 2, 3]
    assert history.after.ids("silver", topic) == [1, 2, 3, 4]
    assert history.after.ids("late", topic) == []
    assert history.after.ids("latest", topic) == [4]


def test_what_comes_out_of_order_is_kept_in_late_once(history: History) -> None:
    topic = history.topic("disorder")
    assert history.after.ids("silver", topic) == [1, 5, 6]
    assert history.after("late", topic, "id", "mark") == [(3, 5), (4, 5)]
    assert history.after.ids("latest", topic) == [6]


def test_a_deleted_key_stays_as_deleted_and_can_come_back(history: History) -> None:
    topic = history.topic("deleted")
    columns = ("id", "key", "value", "is_deleted")
    assert history.before("latest", topic, *columns) == [
        (2, b"a", None, True),
        (3, b"b", None, True),
    ]
    assert history.after("latest", topic, *columns) == [
        (3, b"b", None, True),
        (4, b"a", b"new", False),
    ]
    current = tables.current(history.spark, history.settings)
    assert [row["id"] for row in current.where(f"topic = '{topic}'").collect()] == [4]


def test_records_without_a_key_come_once_and_have_no_latest(history: History) -> None:
    topic = history.topic("no key")
    assert history.before.ids("silver", topic) == [5, 7]
    assert history.after.ids("silver", topic) == [5, 7, 9]
    assert history.after.ids("late", topic) == []
    assert history.after.ids("latest", topic) == []


def test_two_outboxes_with_the_same_ids_are_told_apart(history: History) -> None:
    topic = history.topic("sources")
    assert history.after("silver", topic, "source", "id") == [
        *(("mall", 1), ("mall", 2)),
        *(("shop", 1), ("shop", 2)),
    ]
    assert history.after("latest", topic, "source", "id") == [("mall", 2), ("shop", 2)]


def test_a_key_in_two_partitions_loses_and_repeats_nothing(history: History) -> None:
    topic = history.topic("partitions")
    silver, late = (history.after.ids(t, topic) for t in ("silver", "late"))
    assert sorted(silver + late) == [1, 2, 3, 4, 5]
    assert history.after.ids("latest", topic) == [5]


def test_records_of_aborted_transactions_are_invisible(history: History) -> None:
    topic = history.topic("aborted")
    assert len(history.after("bronze", topic, "offset")) == 2
    assert history.after.ids("silver", topic) == [1, 3]


def test_what_does_not_fit_is_in_quarantine_and_values_have_columns(
    history: History,
) -> None:
    topic = history.topic("payloads")
    invalid = "the value does not match the topic's schema"
    assert history.after("quarantine", topic, "offset", "reason") == [
        (0, "no outbox-source or outbox-id header"),
        *((2, invalid), (3, invalid), (4, invalid)),
    ]
    assert history.after.ids("silver", topic) == [1, 2, 3, 4, 5]
    silver = tables.read(history.spark, history.settings, "silver")
    rows = typed(silver, topic=topic, schema=SCHEMA).collect()
    assert [(row["key"], row["status"], row["total"]) for row in rows] == [
        ("k", "placed", 3)
    ]
    # Two columns of one name could not be read.
    with_id = typed(silver, topic=topic, schema=f"{SCHEMA}, ID BIGINT")
    assert [name for name in with_id.columns if "id" in name.lower()] == [
        "id",
        "payload_ID",
    ]
    stored = tables.read(history.spark, history.settings, f"typed/{topic}")
    found = stored.select("id", "is_deleted", "payload.*").orderBy("id").collect()
    assert [tuple(row) for row in found] == [
        (1, False, "placed", 3),
        (5, True, None, None),
    ]


def test_ids_that_a_failover_gave_out_again_lose_no_record(history: History) -> None:
    topic = history.topic("failover")
    assert history.after.ids("silver", topic) == [1, 2, 3]
    assert history.after("late", topic, "message_id") == [("another",)]


def test_progress_tells_of_each_batch_and_what_is_left(history: History) -> None:
    for query in ("ingest", "refine"):
        batches = [r for r in history.readings if r.query == query]
        numbers = [reading.batch for reading in batches]
        assert numbers == list(range(len(batches)))
        assert sum(reading.rows for reading in batches) == history.after.count("bronze")
    ingested = [r.lag for r in history.readings if r.query == "ingest"]
    assert ingested[-1] == 0
    counted = [r for r in history.readings if r.query == "refine"]
    for name, table in (("late", "late"), ("quarantined", "quarantine")):
        found = sum(getattr(reading, name) for reading in counted)
        assert found == history.after.count(table)
    kept = history.after.count("silver") + history.after.count("late")
    assert (
        sum(r.copies or 0 for r in counted) == history.after.count("bronze") - kept - 1
    )


def test_a_batch_of_many_partitions_makes_few_files(history: History) -> None:
    batches = [r for r in history.readings if r.query == "ingest"]
    files = tables.detail(history.spark, history.settings, "bronze")["numFiles"]
    # There is one shuffle partition in these tests.
    assert files == len(batches) > 1
