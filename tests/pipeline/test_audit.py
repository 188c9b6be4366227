"""Faults put in on purpose, and the audit that finds exactly those."""

from __future__ import annotations

import json
import threading
import time
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import psycopg
import pytest
from pyspark.sql import functions as F

from django_outbox.exceptions import RecordsDeleted
from django_outbox.pipeline import commands
from django_outbox.pipeline.__main__ import main
from django_outbox.pipeline.audit import jdbc
from django_outbox.pipeline.audit.comparison import (
    _reached,
    _read_kafka,
    audit,
    compared,
)
from django_outbox.pipeline.audit.latest_rows import latest_problems
from django_outbox.pipeline.audit.past_audits import next_start, remember
from django_outbox.pipeline.audit.printout import as_json, as_text
from django_outbox.pipeline.audit.report import COUNTS, Report
from django_outbox.pipeline.audit.verdict import judge
from django_outbox.pipeline.kafka_errors import explained_reading
from django_outbox.pipeline.lake import tables
from django_outbox.pipeline.lake.records import has_bad_creation_time, parse
from django_outbox.pipeline.lake.refine import start_refine
from django_outbox.pipeline.pipeline_run import run_once
from django_outbox.pipeline.pipeline_settings import PipelineSettings

from ..machine import nightly
from ..services import Topics
from .lakes import NOW, Sender, outbox_headers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


MADE = datetime.fromtimestamp(1_700_000_000, UTC)
"""When a sender's messages were created, as they say."""


def archive(
    postgres: psycopg.Connection,
    topic: str,
    *ids: int,
    table: str = "outbox_archive",
    cluster: int = 0,
    created: datetime | str | None = None,
) -> None:
    """Say that these messages of key `k` were sent; or, in `outbox`, wait."""
    for id in ids:
        postgres.execute(
            f"INSERT INTO {table} (id, kafka_topic, kafka_key, kafka_value, message_id,"
            " create_time, cluster_id, attempts, last_error, kafka_header_keys,"
            " kafka_header_values) VALUES (%s, %s, 'k', '{}', %s,"
            " %s, %s, 0, '', '{}', '{}')",
            [id, topic, message_id(id), created or MADE, cluster],
        )
    postgres.execute(
        "UPDATE outbox_archive SET archived_at = now() - interval '1 hour'"
    )


def message_id(id: int) -> str:
    return f"00000000-0000-0000-0000-{id:012}"


def send(sender: Sender, topic: str, *ids: int, **fault: Any) -> None:
    for id in ids:
        sender.send(topic, id, message_id=message_id(id), **fault)


def counts(report: Report) -> dict[str, int]:
    return {name: n for name in COUNTS if (n := report.total(name))}


def test_what_arrives_during_an_audit_is_no_fault(
    spark: SparkSession,
    topics: Topics,
    settings: PipelineSettings,
    postgres: psycopg.Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Message 2 comes behind the first look at the topic, 3 behind the database."""
    (topic,) = settings.topics
    sender = Sender(topics.servers)
    archive(postgres, topic, 1, 2)
    send(sender, topic, 1)
    looks = 0

    def look(*arguments: Any) -> DataFrame:
        nonlocal looks
        looks += 1
        if looks == 2:
            send(sender, topic, 2, 3)
        return _read_kafka(*arguments)

    monkeypatch.setattr("django_outbox.pipeline.audit.comparison._read_kafka", look)
    report = audit(spark, settings)
    assert looks == 2
    assert counts(report) == {"behind": 2}
    assert report.total("messages") == 2
    states = {p.name: (p.state, p.messages) for p in judge(report).promises}
    assert states["loss"] == ("ok", 2)
    assert states["lake"] == ("not judged", 0)


def test_an_audit_beside_a_batch_misses_none_of_its_messages(
    spark: SparkSession, topics: Topics, settings: PipelineSettings
) -> None:
    """Its late ones are in the lake first, and silver says how far it has come."""
    (topic,) = settings.topics
    settings = replace(settings, database_url="")
    send(Sender(topics.servers), topic, 1, 5, 3)
    run_once(spark, settings, stop=threading.Event(), steps=("ingest",))
    found: dict[str, dict[str, int]] = {}

    def look(table: str) -> None:
        if table in {"late", "silver"}:
            found[table] = counts(audit(spark, settings))

    query = start_refine(spark, settings, trigger=NOW, reached=look)
    query.awaitTermination()
    assert query.exception() is None
    assert found == {
        "late": {"disorder": 1, "behind": 2},
        "silver": {"disorder": 1},
    }


def test_records_that_retention_deletes_during_an_audit_are_explained() -> None:
    lost = (
        "Job aborted: Some data may have been lost because they are not available in"
        " Kafka any more;\neither the data was aged out\nReason:\n"
        "Could not read records in offset [3, 9) for topic partition orders-0\nwith"
        " consumer group x."
    )
    expected = r"while they were read: Could not .* orders-0\. .* Run the command again"
    with pytest.raises(RecordsDeleted, match=expected), explained_reading():
        raise RuntimeError(lost)
    with pytest.raises(RuntimeError, match="another"), explained_reading():
        raise RuntimeError("another")


def test_a_reading_that_meets_no_topic_says_so(
    spark: SparkSession,
    topics: Topics,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(commands.audit, "session", lambda _: nullcontext(spark))
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", topics.servers)
    monkeypatch.delenv("DATABASE_URL", raising=False)

    assert main(["audit", f"--lake={tmp_path}", "--topic=there-is-none"]) == 1
    assert "audit: At least one topic does not exist" in capsys.readouterr().err


@pytest.fixture
def settings(database_url: str, topics: Topics, tmp_path: Path) -> PipelineSettings:
    return PipelineSettings(
        lake=str(tmp_path / "lake"),
        kafka={"bootstrap.servers": topics.servers},
        topics=(topics.create(partitions=2),),
        database_url=database_url,
        source="shop",
    )


def test_the_audit_finds_exactly_what_was_put_in(
    spark: SparkSession,
    topics: Topics,
    settings: PipelineSettings,
    postgres: psycopg.Connection,
) -> None:
    (topic,) = settings.topics
    sender = Sender(topics.servers)
    archive(postgres, topic, *range(1, 11))
    archive(postgres, topic, 11, 12, table="outbox")
    send(sender, topic, 1, 2, 3, 4, 11)
    # A table's row has an id that was an event's, and nobody has promised it.
    sender.send(topic, 4, message_id=message_id(400), backfill="orders")
    run_once(spark, settings, stop=threading.Event())
    # Another topic's row with a creation time that no Python can show.
    silver, latest = (tables.name(settings, t) for t in ("silver", "latest"))
    other = (
        tables.read(spark, settings, "silver")
        .where("id = 1")
        .withColumns(
            {
                "topic": F.lit("other"),
                "created_at": F.timestamp_micros(F.lit(2**63 - 1)),
            }
        )
    )
    other.write.format("delta").mode("append").save(settings.table_path("silver"))

    good = audit(spark, settings)
    assert counts(good) == {"lost": 6, "pending": 2}
    assert good.examples == {"lost": [5, 6, 7, 8, 9, 10]}
    send(sender, topic, 5, 6, 7)
    send(sender, topic, 7, 7)
    send(sender, topic, 10, 9)
    sender.send(topic, 8, message_id=message_id(8), value="changed", partition=1)
    send(sender, topic, 13)
    # What refine has passed must be in the lake, once.
    spark.sql(f"DELETE FROM {silver} WHERE id = 2")
    spark.sql(f"INSERT INTO {silver} SELECT * FROM {silver} WHERE id = 3")
    spark.sql(f"INSERT INTO {latest} SELECT * FROM {latest}")

    bad = audit(spark, settings)
    assert counts(bad) == {
        "unexpected": 1,
        "copies": 2,
        "altered": 1,
        "lake_lost": 1,
        "lake_copies": 1,
        "latest_copies": 1,
        "pending": 2,
        # 5, 6, 7, 10 and 9 have come behind 11.
        "disorder": 5,
        "split_keys": 1,
        # All that was sent since: refine has not run again.
        "behind": 7,
    }
    assert bad.examples == {
        "unexpected": [13],
        "copies": [7],
        "altered": [8],
        "lake_lost": [2],
        "lake_copies": [3],
        "latest_copies": [11],
        "disorder": [5, 6, 7, 9, 10],
        "split_keys": [1],
    }
    assert bad.total("messages") == 12
    verdict = judge(bad)
    assert '"unexpected": 1' in as_json(bad, verdict)
    printed = as_text(bad, verdict)
    assert "altered: ids [8]" in printed
    # The messages say that they were made in 2023.
    assert (bad.oldest, bad.newest) == (MADE, MADE)
    url = urlsplit(settings.database_url)
    assert bad.compared.databases == (f"{url.hostname}:{url.port}{url.path}",)
    assert bad.compared.tables[0] == "outbox_archive"
    assert not url.password or url.password not in printed
    assert {p.name: p.messages for p in verdict.promises} == {
        # All but the two that are pending are archived; 13 should be.
        "loss": 12,
        **dict.fromkeys(("copies", "order", "latency"), 12),
        "content": 11,
        "lake": 5,
    }
    assert bad.whole().latencies.total() == 12
    assert min(bad.whole().latencies) > 0


def test_what_the_archive_has_forgotten_is_not_unexpected(
    spark: SparkSession,
    topics: Topics,
    settings: PipelineSettings,
    postgres: psycopg.Connection,
) -> None:
    """Message 1 was parked for long, so that its id says nothing of the archive."""
    (topic,) = settings.topics
    sender = Sender(topics.servers)
    archive(postgres, topic, 1)
    two_hours_ago = int(time.time() - 7200) * 1000
    send(Sender(topics.servers, timestamp=two_hours_ago), topic, 2)
    send(sender, topic, 1)
    young = audit(spark, settings, max_behind_age=3600)
    assert counts(young) == {"behind": 1, "overdue": 1, "disorder": 1}
    assert young.examples["overdue"] == [2]
    assert young.total("loss_unknown") == 1
    send(sender, topic, 3)
    assert audit(spark, settings).examples["unexpected"] == [3]


def test_a_message_that_waits_does_not_stand_for_an_archive(
    spark: SparkSession,
    topics: Topics,
    settings: PipelineSettings,
    postgres: psycopg.Connection,
) -> None:
    """Its leader was killed before the purge, for instance."""
    (topic,) = settings.topics
    archive(postgres, topic, 2, table="outbox")
    send(Sender(topics.servers), topic, 1, 2)
    report = audit(spark, settings)
    (loss,) = [p for p in judge(report).promises if p.name == "loss"]
    assert (loss.state, report.total("loss_unknown")) == ("not judged", 2)


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_the_audit_of_several_clusters_asks_each(
    spark: SparkSession,
    topics: Topics,
    settings: PipelineSettings,
    postgres: psycopg.Connection,
    other_postgres: psycopg.Connection,
    other_database_url: str,
) -> None:
    """Cluster 1 has relayed 6 for cluster 0, and not yet 5, which both know."""
    (topic,) = settings.topics
    sender = Sender(topics.servers)
    archive(postgres, topic, 2, 4)
    archive(postgres, topic, 5, table="outbox", cluster=1)
    archive(other_postgres, topic, 1, 3, 7, cluster=1)
    archive(other_postgres, topic, 6)
    archive(other_postgres, topic, 5, table="outbox", cluster=1)
    # 2 is from before there were several.
    send(sender, topic, 2, source="shop")
    send(sender, topic, 4, 6, source="shop/0")
    send(sender, topic, 1, 3, 9, source="shop/1")

    clusters = {"shop/0": settings.database_url, "shop/1": other_database_url}
    report = audit(spark, replace(settings, clusters=clusters))
    assert counts(report) == {"lost": 1, "unexpected": 1, "pending": 1, "behind": 6}
    assert report.examples == {"lost": [7], "unexpected": [9]}
    assert "shop/0" in as_text(report, judge(report))
    assert len(report.compared.databases) == 2


SINCE = datetime(2026, 1, 1, tzinfo=UTC)
EPOCH = datetime.fromtimestamp(0, UTC)
OLD, NEW = SINCE - timedelta(seconds=1), SINCE + timedelta(days=1)


@nightly
def test_only_what_was_created_since_a_time_is_judged(
    spark: SparkSession,
    topics: Topics,
    settings: PipelineSettings,
    postgres: psycopg.Connection,
) -> None:
    """
    1 to 3 are older: 1 came before that time, 2 after it, 3 never. 10 and 11 have
    times that a lake cannot have: it takes the one for older, the other for undated.
    """
    (topic,) = settings.topics
    for id, created in ((1, OLD), (2, OLD), (3, OLD), (4, SINCE), (5, NEW)):
        archive(postgres, topic, id, created=created)
    archive(postgres, topic, 8, table="outbox", created=NEW)
    archive(postgres, topic, 9, table="outbox", created=OLD)
    archive(postgres, topic, 10, created="infinity")
    archive(postgres, topic, 11, created="1969-12-31")
    producer = Sender(topics.servers).producer()
    sent = [(1, OLD, OLD), (2, OLD, None), (4, SINCE, None), (6, NEW, None)]
    sent += [(10, EPOCH, None), (11, EPOCH - timedelta(days=1), NEW)]
    for id, created, delivered in sent:
        micros = int(created.timestamp()) * 1_000_000
        headers = dict(outbox_headers(id, message_id=message_id(id)))
        producer.produce(
            topic,
            key="k",
            value="{}",
            headers={**headers, "outbox-created-at": str(micros).encode()},
            partition=0,
            timestamp=int((delivered or datetime.now(UTC)).timestamp() * 1000),
        )
    assert producer.flush(10) == 0
    tables.create(spark, settings)
    for name in ("silver", "latest"):
        rows = [
            {
                "source": "shop",
                "topic": topic,
                "id": id,
                "message_id": message_id(id),
                "created_at": created,
                "partition": 0,
                "offset": offset,
                "key": b"k",
                "value": b"{}",
            }
            # 2 is in the lake twice; latest has the newest only.
            for id, created, offset in ((2, OLD, 1), (2, OLD, 1), (4, SINCE, 2))
            if name == "silver" or id == 4
        ]
        frame = spark.createDataFrame(rows, tables.SCHEMAS[name])
        path = settings.table_path(name)
        frame.write.format("delta").mode("append").save(path)

    new = audit(spark, settings, since=SINCE + timedelta(microseconds=5))
    assert counts(new) == {"lost": 1, "unexpected": 1, "pending": 1, "behind": 2}
    assert new.examples == {"lost": [5], "unexpected": [6]}
    assert new.total("messages") == 3
    assert (new.oldest, new.newest) == (SINCE, NEW)
    assert new.oldest_in_transit == NEW
    everything = audit(spark, settings)
    assert everything.examples["lost"] == [3, 5]
    assert everything.examples["lake_lost"] == [1]
    assert everything.examples["lake_copies"] == [2]

    # What the next audit begins with.
    same = compared(settings)
    assert next_start(spark, settings, same) is None
    for began, until in (
        (NEW + timedelta(minutes=5), SINCE + timedelta(hours=23, minutes=5)),
        (NEW + timedelta(hours=2), NEW),
    ):
        remember(spark, settings, new, judge(new), began=began)
        assert next_start(spark, settings, same) == until
    # It has not judged these.
    for others in ({"topics": ("others",)}, {"databases": ()}):
        assert next_start(spark, settings, replace(same, **others)) is None
    kept = tables.read(spark, settings, "audits").orderBy("at").collect()
    assert [row["verdict"] for row in kept] == ["broken", "broken"]
    assert json.loads(kept[0]["summary"])["total"]["lost"] == 1


def test_a_topic_that_was_made_again_is_due_as_far_as_its_own_rows_go(
    spark: SparkSession,
) -> None:
    """The lake has five rows of the former topic, and two of this one."""
    columns = "topic STRING, partition INT, offset BIGINT, delivered_at TIMESTAMP"
    former, now = OLD, NEW
    kafka = [("orders", 0, n, now + timedelta(seconds=n)) for n in range(4)]
    lake = [("orders", 0, n, former) for n in range(5)] + kafka[:2]
    frames = [spark.createDataFrame(rows, columns) for rows in (kafka, lake)]
    (row,) = _reached(*frames).collect()
    assert row["reached"] == 1


def test_a_large_archive_is_read_in_slices(
    spark: SparkSession,
    settings: PipelineSettings,
    postgres: psycopg.Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (topic,) = settings.topics
    archive(postgres, topic, *range(1, 21))
    archive(postgres, topic, 21, table="outbox")
    postgres.execute(
        "UPDATE outbox_archive SET archived_at = now() - id * interval '1 hour'"
    )

    def read(**options: Any) -> DataFrame:
        promises = jdbc.promises(spark, settings, **options)
        assert promises is not None
        return promises.where(F.col("topic") == topic)

    def ids(promises: DataFrame) -> list[int]:
        return sorted(row["id"] for row in promises.select("id").collect())

    assert read().rdd.getNumPartitions() == 1
    monkeypatch.setattr(jdbc, "PARALLEL_BYTES", 0)
    monkeypatch.setattr(jdbc, "_parallelism", lambda _: 4)
    slices = read()
    assert slices.rdd.getNumPartitions() == 4
    assert ids(slices) == list(range(1, 22))
    sizes = slices.groupBy(F.spark_partition_id()).count().collect()
    assert all(row["count"] < 10 for row in sizes)
    # The archive's days before are not read at all.
    since = datetime.now(UTC) - timedelta(hours=10, minutes=30)
    postgres.execute(
        "UPDATE outbox_archive SET create_time = archived_at - interval '1 minute'"
    )
    assert ids(read(since=since)) == list(range(1, 11))


def test_latest_is_checked_up_to_the_last_merge(spark: SparkSession) -> None:
    columns = "key_digest STRING, id BIGINT, offset BIGINT"
    at = F.timestamp_seconds(F.col("id"))
    place = {"source": F.lit("shop"), "topic": F.lit("orders"), "partition": F.lit(0)}

    def rows(*rows: tuple[str | None, int, int]) -> DataFrame:
        frame = spark.createDataFrame(rows, columns).withColumns(place)
        return frame.withColumns({"rank": F.col("id"), "delivered_at": at})

    lake = rows(
        *(("good", 1, 0), ("good", 2, 1), ("old", 3, 2), ("old", 4, 3)),
        *(("gone", 5, 4), ("twice", 6, 5), (None, 9, 6)),
        # Their batch is not in latest yet.
        *(("good", 10, 8), ("new", 11, 9)),
    )
    latest = rows(("good", 2, 1), ("old", 3, 2), ("twice", 6, 5), ("twice", 7, 7))

    def problems(latest: DataFrame, *, is_merged: bool) -> list[tuple[Any, ...]]:
        found = latest_problems(latest, lake, is_merged=is_merged).orderBy("id")
        return [tuple(row)[2:] for row in found.collect()]

    known = [(3, 0, 1), (5, 0, 1), (7, 1, 0)]
    assert problems(latest, is_merged=False) == known
    # Once all batches have ended, it must have those of the last one, too.
    assert problems(latest, is_merged=True) == [(2, 0, 1), *known, (11, 0, 1)]
    none = latest.where("id < 0")
    assert not problems(none, is_merged=False)
    assert [id for id, *_ in problems(none, is_merged=True)] == [4, 5, 6, 10, 11]
    # The topic was created again, and the batch with the last one is not merged yet.
    lake = rows(("a", 1, 70), ("a", 20, 0), ("a", 21, 1))
    assert not problems(rows(("b", 2, 71), ("a", 20, 0)), is_merged=False)


def test_a_creation_time_out_of_range_is_null(spark: SparkSession) -> None:
    texts = ["0", "253402300799999999", "-1", "253402300800000000", str(2**63 - 1), "x"]
    rows = [
        ("t", 0, n, None, 0, b"k", b"v", [("outbox-created-at", text.encode())])
        for n, text in enumerate(texts)
    ]
    rows.append(("t", 0, len(texts), None, 0, b"k", b"v", []))
    bronze = spark.createDataFrame(rows, tables.SCHEMAS["bronze"])
    parsed = parse(bronze).withColumn("is_bad", has_bad_creation_time())
    found = parsed.selectExpr("unix_micros(created_at)", "is_bad").collect()
    assert [tuple(row) for row in found] == [
        *((0, False), (253402300799999999, False)),
        *[(None, True)] * 4,
        (None, False),
    ]
