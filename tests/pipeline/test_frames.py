"""The pure functions on small frames, without Kafka and without tables."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from django_outbox.jars import read_list
from django_outbox.pipeline.audit.comparison import disorder, split_keys
from django_outbox.pipeline.lake.classification import classify, unseen
from django_outbox.pipeline.lake.records import INVALID, parse
from django_outbox.pipeline.lake.tables import SCHEMAS
from django_outbox.pipeline.payloads.unwrapping import as_in_topic
from django_outbox.pipeline.pipeline_settings import (
    ENVIRONMENT,
    PipelineSettings,
    build,
)

from .lakes import outbox_headers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "pipeline.md"


def records(
    spark: SparkSession, *rows: tuple[int, int | None, str | None]
) -> DataFrame:
    """Records of one partition, in this order: id (or none), and key."""
    return spark.createDataFrame(
        [
            {
                "source": "shop" if id is not None else None,
                "topic": "orders",
                "partition": 0,
                "offset": offset,
                "id": id,
                "message_id": str(id),
                "key": key.encode() if key else None,
                "key_digest": key,
                "is_deleted": False,
                "rank": id,
                "row": offset,
            }
            for offset, id, key in rows
        ],
        f"{SCHEMAS['silver']}, key_digest STRING, rank BIGINT, row BIGINT",
    )


@pytest.fixture
def batch(spark: SparkSession) -> DataFrame:
    return records(
        spark,
        *((0, 3, "a"), (1, 4, "a"), (2, 4, "a"), (3, 2, "a"), (4, 5, "a")),
        *((5, 1, "b"), (6, 9, None), (7, None, "a")),
    )


def test_a_record_is_judged_by_what_its_key_has_had(
    spark: SparkSession, batch: DataFrame
) -> None:
    latest = records(spark, (0, 3, "a"))
    judged = classify(batch, latest).orderBy("offset").collect()
    assert [(row["offset"], row["kind"], row["mark"]) for row in judged] == [
        *((0, "stale", 3), (1, "fresh", 3), (2, "stale", 4), (3, "stale", 4)),
        *((4, "fresh", 4), (5, "fresh", None), (6, "unkeyed", None)),
        (7, "unidentified", None),
    ]


def test_what_was_seen_anywhere_is_dropped_and_the_rest_comes_once(
    spark: SparkSession, batch: DataFrame
) -> None:
    seen = records(spark, (0, 1, "b")).unionByName(batch.limit(1))
    for broadcast in (False, True):
        left = unseen(batch.where("id < 6"), seen, broadcast=broadcast)
        assert sorted(row["offset"] for row in left.collect()) == [1, 3, 4]


def test_the_newest_of_each_key_is_the_one_with_the_highest_id(
    spark: SparkSession, batch: DataFrame
) -> None:
    judged = classify(batch, records(spark, (0, 1, "b"))).where("is_newest")
    assert [(bytes(r["key"]), r["id"]) for r in judged.collect()] == [(b"a", 5)]


def test_headers_are_found_wherever_they_are(spark: SparkSession) -> None:
    ours = outbox_headers(7)
    rows = [
        ours,
        [*ours, ("outbox-replay", b"run")],
        [("user", None), *reversed(ours)],
        [*outbox_headers(6), *ours],
        [*ours[:2], ("user", b"x")],
        [],
        None,
    ]
    frame = spark.createDataFrame(
        [{"headers": headers, "offset": n} for n, headers in enumerate(rows)],
        SCHEMAS["bronze"],
    )
    found = parse(frame).orderBy("offset").collect()
    wanted = ("shop", 7, "shop-7")
    assert [(r["source"], r["id"], r["message_id"]) for r in found] == [
        *(wanted, wanted, wanted, wanted),
        *((None, 7, "shop-7"), (None, None, None), (None, None, None)),
    ]


def test_copies_are_no_disorder_and_a_key_without_an_order_is_told(
    spark: SparkSession, batch: DataFrame
) -> None:
    kafka = batch.where("id IS NOT NULL")
    assert [row["id"] for row in disorder(kafka).collect()] == [2]
    assert split_keys(kafka).isEmpty()
    elsewhere = records(spark, (0, 6, "b")).selectExpr(
        *(c if c != "partition" else "1 AS partition" for c in kafka.columns)
    )
    both = kafka.unionByName(elsewhere)
    assert [row["key_digest"] for row in split_keys(both).collect()] == ["b"]


def test_the_archives_for_spark_are_pinned() -> None:
    archives = read_list("spark")
    assert len({(c.group, c.artifact) for c in archives}) == len(archives) == 11


def test_the_reference_has_every_setting_variable_and_table() -> None:
    words = set(re.findall(r"`(\w+)`", REFERENCE.read_text("utf-8")))
    settings = {field.name for field in fields(PipelineSettings)}
    assert {*settings, *ENVIRONMENT, *SCHEMAS} <= words


def test_a_topic_that_is_named_twice_is_one() -> None:
    """Kafka refuses to describe a topic twice."""
    named = build({"lake": "lake", "topics": ["orders,invoices", "orders"]}).topics
    assert named == ("orders", "invoices")


def test_a_reason_quotes_no_value_that_is_wrapped(spark: SparkSession) -> None:
    """It would stay in the lake when the key is gone."""
    quote = f"{INVALID}: 'secret' is no status"
    found = spark.createDataFrame(
        [
            (b"plain", b"plain", None, quote),
            (b"secret", b"wrapped", None, quote),
            (None, b"wrapped", "it cannot be decrypted", None),
            (None, b"wrapped", "erased", None),
        ],
        "value BINARY, wrapped BINARY, problem STRING, reason STRING",
    )
    rows = as_in_topic(found).select("value", "reason").collect()
    assert [(bytes(value), reason) for value, reason in rows] == [
        (b"plain", quote),
        (b"wrapped", INVALID),
        (b"wrapped", "it cannot be decrypted"),
    ]
