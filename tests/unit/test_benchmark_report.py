"""What a run of the benchmarks leaves behind in the docs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.benchmarks import floors, report, targets
from tests.benchmarks.readings import Book, percentile
from tests.benchmarks.suite import BENCHMARKS

PAGE = f"before\n{report.BEGIN}\nan older run\n{report.END}\nafter\n"


@pytest.fixture
def book() -> Book:
    book = Book()
    for value in (100.0, 300.0, 200.0):
        book.note("backlog", "1,000 keys", "Debezium tuned", value)
        book.note("backlog", "1,000 keys", "at-least-once", 2 * value)
    book.note("losses", "4 concurrent writers", "at-least-once", 0, figure="lost")
    return book


def written(book: Book, folder: Path) -> str:
    page = folder / "page.md"
    page.write_text(PAGE, "utf-8")
    report.write(book, "a command", page=page, folder=folder / "figures")
    return page.read_text("utf-8")


def test_a_run_replaces_the_run_before_and_nothing_else(
    book: Book, tmp_path: Path
) -> None:
    text = written(book, tmp_path)

    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "an older run" not in text
    assert "a command" in text


def test_each_side_has_its_median_its_spread_and_its_ratio_to_the_peer(
    book: Book, tmp_path: Path
) -> None:
    (row,) = [
        line
        for line in written(book, tmp_path).splitlines()
        if line.startswith("| 1,000 keys | rate | at-least-once |")
    ]

    assert "| 400 records/s | 200 – 600 | 2.00 × Debezium tuned |" in row


def test_a_side_that_is_far_behind_has_a_ratio_with_digits(
    book: Book, tmp_path: Path
) -> None:
    book.note("packages", "5,000 rows", "at-least-once", 30_000.0)
    book.note("packages", "5,000 rows", "django-jaiminho", 300.0)

    assert "| 0.01 × at-least-once |" in written(book, tmp_path)
    book.note("packages", "10 rows", "at-least-once", 30_000.0)
    book.note("packages", "10 rows", "django-jaiminho", 123.0)
    assert "| 0.0041 × at-least-once |" in written(book, tmp_path)


def test_the_figures_can_be_read_by_a_program(book: Book, tmp_path: Path) -> None:
    written(book, tmp_path)

    record = json.loads((tmp_path / "figures" / report.FIGURES).read_text("utf-8"))
    (ours,) = [
        f
        for f in record["figures"]
        if (f["side"], f["figure"]) == ("at-least-once", "rate")
    ]
    assert ours["values"] == [200.0, 600.0, 400.0]
    assert ours["median"] == 400.0
    assert len(ours["loads"]) == 3


def test_what_is_worth_a_look_is_drawn(book: Book, tmp_path: Path) -> None:
    text = written(book, tmp_path)

    assert "](performance/backlog-rate.svg)" in text
    assert (tmp_path / "figures" / "backlog-rate.svg").read_text().count("<svg") == 1


def test_the_limit_is_the_slower_of_what_no_relay_can_do_without() -> None:
    book = Book()
    assert floors.limit(book) is None
    book.note(floors.NAME, "any", "librdkafka", 100.0)
    book.note(floors.NAME, "any", "librdkafka, reports", 300.0)
    book.note(floors.NAME, "any", "PostgreSQL", 200.0)

    assert floors.limit(book) == 200.0


def test_percentiles_of_few_readings_are_readings() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([3.0, 1.0, 2.0], 0.99) == 3.0
    assert percentile([1.0], 0.999) == 1.0


def test_the_page_names_every_benchmark() -> None:
    text = report.PAGE.read_text("utf-8")

    assert [name for name in BENCHMARKS if f"| `{name}` |" not in text] == []
    assert text.count(report.BEGIN) == text.count(report.END) == 1


def test_a_target_is_met_missed_or_not_measured() -> None:
    book = Book()
    for side, rate in (("at-least-once", 90.0), ("exactly-once", 160.0)):
        book.note("backlog", "1,000 keys", side, rate, figure="rate in the topic")
    book.note("backlog", "1,000 keys", "Debezium tuned", 100.0)
    rows = [line.split(" | ") for line in targets.table(list(book.summaries()))]
    verdicts = {row[0].removeprefix("| "): row[2:] for row in rows}

    assert verdicts["backlog, at-least-once ÷ Debezium tuned"] == [
        "0.9 ×",
        "**missed** |",
    ]
    assert verdicts["backlog, exactly-once ÷ Debezium tuned"] == ["1.6 ×", "met |"]
    assert verdicts["stash_many() ÷ COPY"][-1] == "not measured |"
