"""
How fast a standing backlog leaves the table.

    python -m tests.benchmarks.backlog --records 200000 --rounds 3
    python -m tests.benchmarks.backlog --delivery exactly-once --keys 1

All sides drain the same rows in turn, in one session and on the same servers:
200-byte values, one header, 10 partitions, acks=all. The topic is counted
after each turn: it has every record, and each once.

The script compares one harvester with a naive relay; `tests/run.py --bench
backlog` compares all deliveries with Debezium, for several kinds of backlog.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from . import arrivals, floors, losses
from .naive import NaiveSide
from .readings import Book
from .servers import servers
from .session import Session
from .sides import HARVESTERS, HarvesterSide, Side, in_turn
from .workload import Workload, new_topic

NAME = "backlog"
SMALL_SHARE = 10
"""Of workloads that are slow or large, one record in so many."""
LARGE_SHARE = 400
"""Of the largest values, one record in so many: half a gigabyte of them."""


def run(session: Session) -> None:
    for workload in workloads(session.scale.records):
        print(f"backlog: {workload.name}, {workload.records:,} records")
        is_first = workload.keys == 1000 and workload.size == 200
        naive = [NaiveSide()] if is_first and not workload.is_zipf else []
        compare(session, workload, [*HARVESTERS, *session.peers, *naive])
    large = large_values(session.scale.records)
    print(f"backlog: {large.name}, {large.records:,} records")
    compare(session, large, [*HARVESTERS])
    for side in HARVESTERS:
        losses.count(session, side, beside=NAME)


def workloads(records: int) -> Sequence[Workload]:
    """Return what is drained."""
    small = max(1, records // SMALL_SHARE)
    return (
        Workload(name="1,000 keys", records=records),
        Workload(name="100,000 keys", records=records, keys=100_000),
        Workload(name="one hot key", records=small, keys=1),
        Workload(name="Zipf, 1,000 keys", records=records, is_zipf=True),
        Workload(name="10 KB values", records=small, size=10_000),
    )


def large_values(records: int) -> Workload:
    """Return what would fill the memory of a relay that counts records alone."""
    few = max(1, records // LARGE_SHARE)
    return Workload(name="900 KB values", records=few, size=900_000)


def warm_up(session: Session) -> None:
    """Let the servers compile and cache what all sides use."""
    workload = Workload(name="warm-up", records=session.scale.warm_up_records)
    for side in (*HARVESTERS, *session.peers):
        side.drain(workload, new_topic())


def compare(
    session: Session, workload: Workload, sides: list[Side], *, benchmark: str = NAME
) -> None:
    """Let all sides drain the same backlog in turn; note rates and CPU time."""

    def play(side: Side) -> None:
        drain(session.book, side, workload, benchmark=benchmark)

    in_turn(sides, session.rounds, play)


def drain(book: Book, side: Side, workload: Workload, *, benchmark: str = NAME) -> None:
    """Let one side drain a backlog once; note what it took."""
    topic = new_topic()
    drained = side.drain(workload, topic)
    found = arrivals.read(topic)
    assert found.records == found.messages == workload.records, (side.name, found)
    records, case = workload.records, workload.name
    seconds = drained.seconds or found.seconds
    book.note(benchmark, case, side.name, records / seconds)
    if workload.size == floors.SIZE and (limit := floors.limit(book)):
        share = 100 * records / seconds / limit
        book.note(benchmark, case, side.name, share, "%", figure="share of the limit")
    if drained.seconds is not None:
        rate = records / found.seconds
        book.note(benchmark, case, side.name, rate, figure="rate in the topic")
    if drained.cpu_seconds is not None:
        cpu = 1e6 * drained.cpu_seconds / records
        book.note(benchmark, case, side.name, cpu, "µs", figure="CPU a record")
    if drained.memory is not None:
        book.note(benchmark, case, side.name, drained.memory, "MB", figure="memory")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--delivery", default="at-least-once")
    arguments = parser.parse_args()

    side = HarvesterSide(arguments.delivery, {"OUTBOX_DELIVERY": arguments.delivery})
    workload = Workload(
        name=f"{arguments.keys:,} keys", records=arguments.records, keys=arguments.keys
    )
    session = Session(rounds=arguments.rounds)
    with servers():
        compare(session, workload, [side, NaiveSide()])
    medians = {
        summary.side: summary.median
        for summary in session.book.summaries()
        if summary.figure == "rate"
    }
    for name, median in medians.items():
        print(f"median   {name:<14} {median:>9,.0f}/s")
    print(f"harvester ÷ naive: {medians[side.name] / medians['naive']:.2f}")


if __name__ == "__main__":
    main()
