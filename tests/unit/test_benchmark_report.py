"""What a run of the benchmarks leaves behind in the docs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Message

from tests.benchmarks import report, targets
from tests.benchmarks.arrivals import Arrivals
from tests.benchmarks.catching_up import caught_up
from tests.benchmarks.crashes import Outcome, judge
from tests.benchmarks.readings import Book, percentile
from tests.benchmarks.suite import BENCHMARKS

PAGE = f"before\n{report.BEGIN}\nan older run\n{report.END}\nafter\n"


@pytest.fixture
def book() -> Book:
    book = Book()
    for value in (100.0, 300.0, 200.0):
        book.note("backlog", "even keys", "Debezium tuned", value)
        book.note("backlog", "even keys", "at-least-once", 2 * value)
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


def test_a_row_has_a_figure_and_the_ratios_of_the_other_sides_to_it(
    tmp_path: Path,
) -> None:
    book = Book()
    for side, rate in (
        ("at-least-once", 400.0),
        ("exactly-once", 250.0),
        ("Debezium tuned", 200.0),
    ):
        book.note("backlog", "even keys", side, rate)
    book.note("backlog", "even keys", "at-least-once", 8.0, "µs", figure="CPU")
    book.note("backlog", "even keys", "exactly-once", 4.0, "µs", figure="CPU")
    lines = written(book, tmp_path).splitlines()

    head = lines.index(
        "| case | figure | Debezium tuned | at-least-once | exactly-once |"
    )
    assert lines[head + 2 : head + 4] == [
        "| even keys | rate, records/s | 200 | 2.00 × (400) | 1.25 × (250) |",
        "| even keys | CPU, µs |  | 8 | 0.50 × (4) |",
    ]


def test_a_side_that_is_far_behind_has_a_ratio_with_digits(
    book: Book, tmp_path: Path
) -> None:
    for case, rate in (("5,000 rows", 300.0), ("10 rows", 123.0)):
        book.note("packages", case, "at-least-once", 30_000.0)
        book.note("packages", case, "django-jaiminho", rate)
    text = written(book, tmp_path)

    assert "| 30,000 | 0.01 × (300) |" in text
    assert "| 30,000 | 0.0041 × (123) |" in text


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


def test_percentiles_of_few_readings_are_readings() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([3.0, 1.0, 2.0], 0.99) == 3.0
    assert percentile([1.0], 0.999) == 1.0


def test_the_page_names_every_benchmark() -> None:
    text = report.PAGE.read_text("utf-8")

    assert [name for name in BENCHMARKS if f"| `{name}` |" not in text] == []
    assert text.count(report.BEGIN) == text.count(report.END) == 1


def verdicts(book: Book) -> dict[str, list[str]]:
    rows = [line.split(" | ") for line in targets.table(list(book.summaries()))]
    return {row[0].removeprefix("| "): row[2:] for row in rows}


def test_a_target_is_met_missed_or_not_measured() -> None:
    book = Book()
    for side, rate in (("at-least-once", 90.0), ("exactly-once", 160.0)):
        book.note("backlog", "even keys", side, rate)
    book.note("backlog", "even keys", "Debezium tuned", 100.0)
    found = verdicts(book)

    ours = found["at-least-once, even keys ÷ Debezium tuned"]
    assert ours == ["0.9 ×", "0.9 – 0.9", "**missed** |"]
    twice = found["exactly-once, even keys ÷ Debezium tuned"]
    assert twice == ["1.6 ×", "1.6 – 1.6", "met |"]
    assert found["stash_many() ÷ COPY"][-1] == "not measured |"


def test_a_ratio_is_one_of_two_sides_in_the_same_round() -> None:
    book = Book()
    for ours, peer in ((90.0, 50.0), (40.0, 20.0), (160.0, 100.0)):
        book.note("backlog", "even keys", "at-least-once", ours)
        book.note("backlog", "even keys", "Debezium tuned", peer)

    found = verdicts(book)["at-least-once, even keys ÷ Debezium tuned"]
    assert found == ["1.8 ×", "1.6 – 2", "met |"]


def test_every_target_names_a_benchmark_and_is_named_once() -> None:
    names = [target.name for target in targets.TARGETS]

    assert len(names) == len({*names})
    for target in targets.TARGETS:
        assert target.of.benchmark in BENCHMARKS
        assert target.base is None or target.base.benchmark in BENCHMARKS


def test_a_relay_has_caught_up_when_no_record_is_late_any_more() -> None:
    committed = {1: 9.0, 2: 10.0, 3: 12.0, 4: 16.4, 5: 17.0}
    seen = {1: 9.1, 2: 16.1, 3: 16.3, 4: 16.5, 5: 17.1}

    assert caught_up(committed, seen, since=9.5) == (16.1, 16.5)


def test_a_record_that_is_still_missing_is_late() -> None:
    committed = {1: 10.0, 2: 12.0, 3: 16.4, 4: 17.9}
    seen = {1: 16.1, 2: 18.0, 3: 16.5, 4: 18.1}

    assert caught_up(committed, seen, since=9.5) == (16.1, 18.1)


def test_what_came_with_the_first_batch_was_there_before_the_clock_started() -> None:
    found = Arrivals(messages=1000, records=1000, seconds=0.5, head=200)

    assert found.rate == 1600


def test_what_a_crash_has_done_is_seen_in_the_topic() -> None:
    """Of five records one is missing, one came twice, and one behind a later one."""
    arrived = [(1, b"a"), (2, b"b"), (4, b"a"), (2, b"b"), (3, b"a")]
    messages = [Message(key=key, headers=[("id", b"%d" % id)]) for id, key in arrived]
    assert judge(messages, 5) == Outcome(missing=1, repeated=1, out_of_order=1)
