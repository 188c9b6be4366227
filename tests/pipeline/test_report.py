"""What people see of an audit: table, page, latencies."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from django_outbox.pipeline.audit.latency import (
    bucket,
    latency,
    milliseconds,
    percentile,
)
from django_outbox.pipeline.audit.page import MEANINGS, page
from django_outbox.pipeline.audit.report import WRONG, Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR = datetime(2026, 11, 21, 8, tzinfo=UTC)
ORDERS = {"source": "shop", "topic": "orders", "hour": HOUR}


def test_percentiles_are_as_exact_as_the_buckets(spark: SparkSession) -> None:
    made, arrived = "timestamp_millis(0)", "timestamp_millis(id)"
    records = spark.range(1, 1001).selectExpr(
        f"{arrived} AS timestamp", f"{made} AS created_at"
    )
    rows = records.groupBy(bucket(latency()).alias("bucket")).count().collect()
    buckets = Counter({row["bucket"]: row["count"] for row in rows})
    for share in (0.5, 0.95, 0.99, 1.0):
        found = percentile(buckets, share)
        assert found is not None
        assert 1000 * share <= found <= 1000 * share * milliseconds(1)
    assert percentile(Counter(), 0.5) is None


def test_a_clock_that_is_behind_makes_no_negative_latency(spark: SparkSession) -> None:
    records = spark.createDataFrame(
        [(HOUR, HOUR + timedelta(milliseconds=4)), (HOUR, None)],
        "timestamp TIMESTAMP, created_at TIMESTAMP",
    )
    found = records.select(bucket(latency()).alias("bucket")).collect()
    assert [row["bucket"] for row in found] == [0, None]


@pytest.fixture
def report() -> Report:
    report = Report()
    report.add({**ORDERS, "messages": 10, "pending": 2})
    report.add_latency({**ORDERS, "latency_bucket": 32, "count": 10})
    return report


def test_a_good_page_has_table_and_charts(report: Report) -> None:
    text = page(report, made=HOUR)
    assert "Nothing lost, nothing altered, nothing out of order" in text
    assert cells(text) == ["shop", "orders", "10", "2", "0", *["16.0"] * 4, "nothing"]
    assert text.count("<svg") == 2
    assert re.findall(r'(?:src|href)="(?!#)', text) == []


def test_a_bad_page_says_what_is_wrong_and_is_safe_to_open(report: Report) -> None:
    evil = {**ORDERS, "topic": "<script>"}
    report.add({**evil, "messages": 1, "lost": 3, "copies": 1})
    report.examples["lost"] = [7, 8, 9]
    text = page(report, made=HOUR)
    assert "Broken: lost" in text
    assert "<td>7, 8, 9" in text
    assert MEANINGS["lost"] in text
    assert "lost 3, copies 1" in text
    assert text.count("<svg") == 3
    assert "<script>" not in text
    assert report.as_table().endswith("lost: ids [7, 8, 9]")


def test_too_many_copies_are_told_from_what_is_broken(report: Report) -> None:
    report.add({**ORDERS, "copies": 5})
    assert "More than 4 duplicates" in page(report, made=HOUR, max_copies=4)
    assert "Nothing lost" in page(report, made=HOUR, max_copies=5)


def test_all_that_can_be_wrong_has_a_meaning() -> None:
    assert tuple(MEANINGS) == WRONG


def cells(text: str) -> list[str]:
    (row,) = re.findall(r"<tr>(<td>.*?)</table>", text)
    return re.findall(r"<td[^>]*>([^<]*)", row)
