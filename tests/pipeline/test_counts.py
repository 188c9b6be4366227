"""The cheap audit: the archive's counts beside those of the lake."""

from __future__ import annotations

import signal
import time
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg
import pytest
from pyspark.sql import functions as F

from django_outbox.exceptions import DatabaseUnavailable
from django_outbox.pipeline import commands
from django_outbox.pipeline.__main__ import main
from django_outbox.pipeline.audit import bucket_counts, jdbc
from django_outbox.pipeline.audit.bucket_counts import Span, count
from django_outbox.pipeline.audit.verdict import EXIT_NOT_JUDGED
from django_outbox.pipeline.lake import tables
from django_outbox.pipeline.pipeline_settings import PipelineSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = 1_700_000_400
WIDTH = 600
SPAN = Span(since=START, width=WIDTH, settle=0)


@pytest.fixture
def settings(database_url: str, tmp_path: Path) -> PipelineSettings:
    return PipelineSettings(
        lake=str(tmp_path),
        topics=(f"topic-{uuid4()}",),
        database_url=database_url,
        source="shop",
    )


def message_id(name: str) -> str:
    return f"00000000-0000-0000-0000-{int.from_bytes(name.encode()):012}"


def write(
    postgres: psycopg.Connection,
    topic: str,
    table: str,
    *messages: Any,
    cluster: int = 0,
    began: int = START,
) -> None:
    if table == "outbox_archive":
        # Another topic's, by which the archive is as old as that.
        postgres.execute(
            "INSERT INTO outbox_archive (id, kafka_topic, kafka_key, create_time,"
            " archived_at, attempts, last_error, kafka_header_keys,"
            " kafka_header_values) VALUES (1, 'another', 'k', to_timestamp(%s),"
            " to_timestamp(%s), 0, '', '{}', '{}') ON CONFLICT DO NOTHING",
            [began, began],
        )
    for bucket, name in messages:
        postgres.execute(
            f"INSERT INTO {table} (id, kafka_topic, kafka_key, message_id, create_time,"
            " cluster_id, attempts, last_error, kafka_header_keys, kafka_header_values)"
            " VALUES (%s, %s, 'k', %s, to_timestamp(%s), %s, 0, '', '{}', '{}')",
            [ord(name), topic, message_id(name), START + bucket * WIDTH, cluster],
        )


def keep(
    spark: SparkSession,
    settings: PipelineSettings,
    *messages: Any,
    source: str = "shop",
) -> None:
    rows = [
        {
            "source": source,
            "topic": settings.topics[0],
            "message_id": message_id(name),
            "created_at": datetime.fromtimestamp(START + bucket * WIDTH, UTC),
        }
        for bucket, name in messages
    ]
    frame = spark.createDataFrame(rows, tables.SCHEMAS["silver"])
    path = settings.table_path("silver")
    frame.write.format("delta").mode("append").save(path)


def test_counts_tell_what_differs_from_what_is_under_way(
    spark: SparkSession, settings: PipelineSettings, postgres: psycopg.Connection
) -> None:
    (topic,) = settings.topics
    tables.create(spark, settings)
    in_archive = ["0a", "0b", "1c", "1d", "2e", "3f", "4g", "5h"]
    write(postgres, topic, "outbox_archive", *[(int(b), n) for b, n in in_archive])
    write(postgres, topic, "outbox", (4, "i"))
    # Right; one lost; another in its place; one copy; one lost and one pending;
    # and nothing where the archive has one.
    in_lake = ["0a", "0b", "1c", "2x", "3f", "3f"]
    keep(spark, settings, *[(int(b), n) for b, n in in_lake])

    found = count(spark, settings, SPAN)
    names = ("in_database", "pending", "in_lake")
    assert [tuple(row[name] for name in names) for row in found] == [
        *((2, 0, 2), (2, 0, 1), (1, 0, 1), (1, 0, 2), (1, 1, 0), (1, 0, 0))
    ]
    assert [(row["bucket"] - START) // WIDTH for row in found] == [0, 1, 2, 3, 4, 5]
    assert [r["state"] for r in found] == [
        *("equal", "different", "different", "different", "open", "different")
    ]

    young = Span(since=START, width=WIDTH, settle=3600)
    states = {r["state"] for r in count(spark, settings, young)}
    assert states == {"equal", "open"}


def test_what_has_just_come_into_the_lake_is_open(
    spark: SparkSession, settings: PipelineSettings, postgres: psycopg.Connection
) -> None:
    """The database was asked before that bucket began."""
    tables.create(spark, settings)
    coming = int(time.time() - START) // WIDTH + 1
    keep(spark, settings, (0, "a"), (coming, "b"))
    write(postgres, settings.topics[0], "outbox_archive", (0, "a"))
    # Written by an earlier version, with a time that Python cannot show.
    silver = tables.read(spark, settings, "silver").limit(1)
    far = silver.withColumn("created_at", F.timestamp_micros(F.lit(2**63 - 1)))
    far.write.format("delta").mode("append").save(settings.table_path("silver"))

    found = count(spark, settings, SPAN)
    assert [r["state"] for r in found] == ["equal", "open"]


@pytest.mark.parametrize(
    "text",
    [
        "[FAILED_JDBC.CONNECTION] Failed JDBC jdbc:postgresql://db on the operation:",
        "PSQLException: FATAL: terminating connection due to administrator command",
        "org.postgresql.util.PSQLException: An I/O error occurred while sending",
        "org.postgresql.util.PSQLException: Connection to db:5432 refused.",
    ],
)
def test_a_connection_that_ends_is_an_outage(text: str) -> None:
    with (
        pytest.raises(DatabaseUnavailable, match="cannot be reached"),
        jdbc.explained("table: 'outbox'"),
    ):
        raise RuntimeError(text)


def test_counts_go_on_after_an_outage_of_the_database(
    spark: SparkSession,
    settings: PipelineSettings,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(commands.counts, "session", lambda _: nullcontext(spark))
    monkeypatch.setenv("DATABASE_URL", "postgres://nobody@127.0.0.1:1/none")
    monkeypatch.setenv("OUTBOX_SOURCE", "shop")
    asked = ["counts", f"--lake={settings.lake}", f"--topic={settings.topics[0]}"]
    assert main(asked) == 1
    assert "counts: The database cannot be reached" in capsys.readouterr().err

    states = iter(["away", "away", "there", "away", "last"])

    def look(*_: object) -> list[object]:
        state = next(states, "there")
        if state == "away":
            raise DatabaseUnavailable("No answer.")
        if state == "last":
            signal.raise_signal(signal.SIGTERM)
        return []

    monkeypatch.setattr(bucket_counts, "count", look)
    assert main([*asked, "--every=1ms"]) == EXIT_NOT_JUDGED
    out, err = capsys.readouterr()
    assert "Nothing was compared: the archive has no message" in err
    assert err.count("No answer. Trying again every 0.001 s.\n") == 2
    assert len(out.splitlines()) >= 2


def test_times_that_the_lake_cannot_have_are_not_counted(
    spark: SparkSession, settings: PipelineSettings, postgres: psycopg.Connection
) -> None:
    (topic,) = settings.topics
    tables.create(spark, settings)
    write(postgres, topic, "outbox_archive", *[(0, name) for name in "abcd"])
    write(postgres, topic, "outbox", (0, "e"))
    for name, created in (
        *(("b", "infinity"), ("c", "12000-01-01"), ("d", "1969-12-31")),
        ("e", "-infinity"),
    ):
        for table in ("outbox_archive", "outbox"):
            postgres.execute(
                f"UPDATE {table} SET create_time = %s WHERE id = %s",
                [created, ord(name)],
            )
    keep(spark, settings, (0, "a"))

    (row,) = count(spark, settings, SPAN)
    assert (row["state"], row["in_database"], row["pending"]) == ("equal", 1, 0)


def test_a_record_that_waits_since_long_does_not_make_the_archive_older(
    spark: SparkSession, settings: PipelineSettings, postgres: psycopg.Connection
) -> None:
    tables.create(spark, settings)
    keep(spark, settings, (1, "b"), (2, "c"))
    write(postgres, settings.topics[0], "outbox", (0, "a"))
    write(postgres, settings.topics[0], "outbox_archive", (2, "c"))

    found = count(spark, settings, SPAN)
    assert [r["state"] for r in found] == ["equal"]


def test_without_an_archive_nothing_is_judged(
    spark: SparkSession, settings: PipelineSettings, postgres: psycopg.Connection
) -> None:
    tables.create(spark, settings)
    keep(spark, settings, (0, "a"), (1, "b"))
    write(postgres, settings.topics[0], "outbox", (0, "c"))

    assert count(spark, settings, SPAN) == []


def test_what_is_older_than_the_archive_is_not_judged(
    spark: SparkSession, settings: PipelineSettings, postgres: psycopg.Connection
) -> None:
    tables.create(spark, settings)
    keep(spark, settings, (0, "a"), (1, "b"), (2, "c"))
    write(postgres, settings.topics[0], "outbox_archive", (1, "b"))

    found = count(spark, settings, SPAN)
    assert [r["state"] for r in found] == ["equal", "different"]


def test_buckets_from_before_the_archive_was_switched_on_are_not_judged(
    spark: SparkSession, settings: PipelineSettings, postgres: psycopg.Connection
) -> None:
    """Though it has messages with such times: `b` had waited for long."""
    tables.create(spark, settings)
    keep(spark, settings, (0, "a"), (0, "b"), (1, "c"), (1, "d"), (2, "e"))
    in_archive = [(0, "b"), (1, "d"), (2, "e")]
    topic, began = settings.topics[0], START + WIDTH + 1
    write(postgres, topic, "outbox_archive", *in_archive, began=began)

    found = count(spark, settings, SPAN)
    assert [(r["in_database"], r["state"]) for r in found] == [(1, "equal")]


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_the_counts_of_several_clusters_are_added(
    spark: SparkSession,
    settings: PipelineSettings,
    postgres: psycopg.Connection,
    other_postgres: psycopg.Connection,
    other_database_url: str,
) -> None:
    """Cluster 1 has relayed `c` for cluster 0; both know that `d` waits in it."""
    (topic,) = settings.topics
    clusters = {"shop/0": settings.database_url, "shop/1": other_database_url}
    settings = replace(settings, clusters=clusters)
    tables.create(spark, settings)
    write(postgres, topic, "outbox_archive", (0, "a"))
    write(other_postgres, topic, "outbox_archive", (0, "b"), cluster=1)
    write(other_postgres, topic, "outbox_archive", (1, "c"))
    for database in (postgres, other_postgres):
        write(database, topic, "outbox", (1, "d"), cluster=1)
    # `a` is from before there were several.
    keep(spark, settings, (0, "a"), source="shop")
    keep(spark, settings, (1, "c"), source="shop/0")
    keep(spark, settings, (0, "b"), source="shop/1")

    found = count(spark, settings, SPAN)
    names = ("in_database", "pending", "in_lake", "state")
    assert [tuple(row[name] for name in names) for row in found] == [
        *((2, 0, 2, "equal"), (1, 1, 1, "equal"))
    ]
