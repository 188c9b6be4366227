"""What people see of an audit: table, page, latencies."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from django_outbox.pipeline.audit.latency import (
    bucket,
    latency,
    milliseconds,
    percentile,
)
from django_outbox.pipeline.audit.page import MEANINGS
from django_outbox.pipeline.audit.page import page as draw
from django_outbox.pipeline.audit.printout import as_json, as_metrics, as_text
from django_outbox.pipeline.audit.report import WRONG, Compared, Report
from django_outbox.pipeline.audit.verdict import FAULTS, judge
from django_outbox.pipeline.textfile import write

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


ALL = {"loss_judged": 10, "keyed": 10, "content_judged": 10, "due": 10}
COMPARED = Compared(
    topics=("orders",),
    databases=("db:5432/shop",),
    lake="/lake",
    tables=("outbox_archive", "silver"),
)


@pytest.fixture
def report() -> Report:
    report = Report(COMPARED)
    span = {"oldest": HOUR, "newest": HOUR + timedelta(minutes=5)}
    report.add({**ORDERS, "messages": 10, "pending": 2, **ALL, **span})
    report.add_latency({**ORDERS, "latency_bucket": 32, "count": 10})
    return report


def page(report: Report, max_copies: int | None = None) -> str:
    return draw(report, judge(report, max_copies=max_copies), made=HOUR)


def states(report: Report, max_copies: int | None = None) -> dict[str, str]:
    verdict = judge(report, max_copies=max_copies)
    return {promise.name: promise.state for promise in verdict.promises}


def test_a_good_page_has_promises_table_and_charts(report: Report) -> None:
    text = page(report)
    assert "<strong>Nothing lost, nothing altered, nothing out of order</strong>" in (
        text
    )
    assert 'class="verdict good"' in text
    promises, topics = cells(text)
    assert promises[:4] == ["loss", "ok", "10", ""]
    assert promises[::4] == list(FAULTS)
    assert topics == ["shop", "orders", "10", "2", "0", *["16.0"] * 4, "nothing"]
    assert "from 2026-11-21 08:00:00 UTC to 2026-11-21 08:05:00 UTC" in text
    assert "<li>databases: db:5432/shop" in text
    assert text.count("<svg") == 2
    assert re.findall(r'(?:src|href)="(?!#)', text) == []


def test_messages_of_the_year_9999_are_drawn(report: Report) -> None:
    last = datetime(9999, 12, 31, 23, tzinfo=UTC)
    report.add({**ORDERS, "messages": 1, "hour": last})
    assert page(report).count("<svg") == 2


def test_a_bad_page_says_what_is_wrong_and_is_safe_to_open(report: Report) -> None:
    evil = {**ORDERS, "topic": "<script>"}
    report.add({**evil, "messages": 1, "lost": 3, "copies": 1})
    report.examples["lost"] = [7, 8, 9]
    text = page(report)
    assert "<strong>Broken: lost</strong>" in text
    assert 'class="verdict bad"' in text
    assert "<td>7, 8, 9" in text
    assert MEANINGS["lost"] in text
    assert "lost 3, copies 1" in text
    assert text.count("<svg") == 3
    assert "<script>" not in text
    printed = as_text(report, judge(report)).splitlines()
    assert "lost: ids [7, 8, 9]" in printed
    assert "loss: broken (10 messages; lost 3)" in printed
    assert printed[-1] == "verdict: broken. Broken: lost"


def test_the_metrics_tell_what_is_broken_from_what_was_not_judged(
    report: Report, tmp_path: Path
) -> None:
    report.add({**ORDERS, "disorder": 2})
    path = tmp_path / "audit.prom"
    write(path, as_metrics(judge(report), made=datetime.fromtimestamp(1700.5, UTC)))
    lines = path.read_text().splitlines()
    name = "django_outbox_pipeline_audit"
    assert f'{name}_broken{{promise="order"}} 1' in lines
    assert f'{name}_broken{{promise="loss"}} 0' in lines
    assert f'{name}_judged_messages{{promise="loss"}} 10' in lines
    assert f"# TYPE {name}_timestamp_seconds gauge" in lines
    assert f"{name}_timestamp_seconds 1700.5" in lines
    assert list(tmp_path.iterdir()) == [path]


def test_too_many_copies_are_told_from_what_is_broken(report: Report) -> None:
    report.add({**ORDERS, "copies": 5})
    assert "More than 4 duplicates" in page(report, max_copies=4)
    assert states(report, max_copies=4)["copies"] == "broken"
    assert "Nothing lost" in page(report, max_copies=5)


def test_an_empty_report_is_not_green() -> None:
    report = Report(COMPARED)
    verdict = judge(report)
    assert (verdict.state, verdict.exit_code) == ("not judged", 4)
    assert set(states(report).values()) == {"not judged"}
    assert 'class="verdict warn"><strong>Nothing judged: no messages' in page(report)


def test_what_was_not_judged_is_not_praised(report: Report) -> None:
    """Neither database, nor creation times, nor refine; one message without a key."""
    report = Report(Compared(topics=("orders",)))
    report.add({**ORDERS, "messages": 1, "behind": 1, "loss_unknown": 1})
    verdict = judge(report)
    notes = {p.name: p.note for p in verdict.promises if p.state == "not judged"}
    assert notes == {
        "loss": "no database",
        "order": "no keys",
        "content": "nothing to compare with",
        "latency": "no creation time",
        "lake": "refine has not read any of them",
    }
    assert (verdict.state, verdict.exit_code) == ("ok", 0)
    assert verdict.headline.startswith("No promise broken; not judged: loss (no data")
    text = page(report)
    assert "lost" not in text
    assert 'class="verdict warn"' in text
    assert "databases: none" in as_text(report, verdict).splitlines()
    found = json.loads(as_json(report, verdict))
    assert found["verdict"] == "ok"
    assert found["promises"][0] == {
        "name": "loss",
        "state": "not judged",
        "messages": 0,
        "note": "no database",
    }
    assert found["span"] == {"oldest": None, "newest": None}
    assert found["compared"]["topics"] == ["orders"]


def test_messages_outside_the_archive_are_counted(report: Report) -> None:
    report.add({**ORDERS, "messages": 4, "loss_unknown": 4})
    loss = judge(report).promises[0]
    assert (loss.state, loss.messages) == ("ok", 10)
    assert loss.note == "4 more are not in the archive's range"
    empty = Report(COMPARED)
    empty.add({**ORDERS, "messages": 4, "loss_unknown": 4})
    assert judge(empty).promises[0].note == "no archive"


@pytest.mark.parametrize(
    ("found", "code"),
    [
        ({"messages": 9, "copies": 2, "pending": 3}, 0),
        ({"copies": 3}, 4),
        ({"copies": 3, "lost": 1}, 3),
        *(({name: 1}, 3) for names in FAULTS.values() for name in names),
    ],
)
def test_the_exit_code_tells_loss_from_copies(found: dict[str, int], code: int) -> None:
    report = Report()
    report.add({**ORDERS, **found})
    assert judge(report, max_copies=2).exit_code == code


def test_all_that_can_be_wrong_has_a_meaning() -> None:
    assert tuple(MEANINGS) == WRONG
    faults = {name for names in FAULTS.values() for name in names}
    assert faults == {*WRONG} - {"copies"}


def cells(text: str) -> list[list[str]]:
    tables = re.findall(r"<tr>(<td>.*?)</table>", text)
    return [re.findall(r"<td[^>]*>([^<]*)", table) for table in tables]
