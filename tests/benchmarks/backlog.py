"""
How fast a standing backlog leaves the table.

    python -m tests.benchmarks.backlog --records 200000 --rounds 3
    python -m tests.benchmarks.backlog --delivery exactly-once --keys 1

All sides drain the same rows in turn, in one session and on the same servers:
200-byte values, the four headers of a harvester, 10 partitions, acks=all. The
topic is counted after each turn: it has every record, and each once.

A rate is that of the messages in the topic, by the broker's clock, for every
side. The script compares one harvester with the two loops alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from . import arrivals
from .naive import NAIVE
from .prototype import PROTOTYPE
from .readings import Book
from .servers import servers
from .session import Session
from .sides import HARVESTERS, ONE_PER_KEY, TABLE_MARKS, HarvesterSide, Side, in_turn
from .workload import Workload, new_topic

NAME = "backlog"
EVEN, SKEWED, HOT, LARGE = "even keys", "skewed keys", "one hot key", "10 KB values"
"""The cases."""

SMALL_SHARE = 10
"""Of values that are large, one record in so many."""


def run(session: Session) -> None:
    both: list[Side] = [*HARVESTERS, *session.peers]
    for workload in workloads(session.scale.records):
        print(f"backlog: {workload.name}, {workload.records:,} records")
        sides = both
        if workload.name == EVEN:
            sides = [*both, NAIVE, PROTOTYPE, ONE_PER_KEY, TABLE_MARKS]
        compare(session, workload, sides)


def workloads(records: int) -> Sequence[Workload]:
    """Return the backlogs that are drained."""
    few = max(1, records // SMALL_SHARE)
    return (
        Workload(name=EVEN, records=records),
        Workload(name=SKEWED, records=records, is_skewed=True),
        Workload(name=HOT, records=records, keys=1),
        Workload(name=LARGE, records=few, size=10_000),
    )


def warm_up(session: Session) -> None:
    """Let the servers compile and cache what all sides use."""
    workload = Workload(name="warm-up", records=session.scale.warm_up_records)
    for side in (*HARVESTERS, *session.peers):
        side.drain(workload, new_topic())


def compare(
    session: Session,
    workload: Workload,
    sides: Sequence[Side],
    *,
    benchmark: str = NAME,
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
    book.note(benchmark, case, side.name, found.rate)
    if drained.seconds is not None:
        rate = records / drained.seconds
        book.note(benchmark, case, side.name, rate, figure="until the table is empty")
    if drained.cpu_seconds is not None:
        cpu = 1e6 * drained.cpu_seconds / records
        book.note(benchmark, case, side.name, cpu, "µs", figure="CPU a record")
    if drained.memory is not None:
        book.note(benchmark, case, side.name, drained.memory, "MB", figure="memory")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--skewed", action="store_true", help="few keys have most")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--delivery", default="at-least-once")
    arguments = parser.parse_args()

    side = HarvesterSide(arguments.delivery, {"OUTBOX_DELIVERY": arguments.delivery})
    workload = Workload(
        name=f"{arguments.keys:,} keys",
        records=arguments.records,
        keys=arguments.keys,
        is_skewed=arguments.skewed,
    )
    session = Session(rounds=arguments.rounds)
    with servers():
        compare(session, workload, [side, NAIVE, PROTOTYPE])
    medians = {
        (summary.figure, summary.side): summary.median
        for summary in session.book.summaries()
    }
    for (figure, name), median in medians.items():
        ratio = medians.get((figure, side.name), 0) / median
        print(f"{figure:<26}{name:<20}{median:>12,.1f}   {side.name} ÷ it: {ratio:.2f}")


if __name__ == "__main__":
    main()
