"""
All benchmarks in one session: `python3 tests/run.py --bench [names]`.

Sides run in turn, round by round, on the same servers. Prints every reading as
it comes, and at the end a table with median, spread and the machine's load;
`report.py` writes the same into `docs/performance.md`.
"""

from __future__ import annotations

import argparse
import os
import shlex
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from django_outbox.devstack import DevstackError
from django_outbox.jars import JarError

from . import (
    backlog,
    catching_up,
    consumers,
    crashes,
    failover,
    floors,
    growth,
    idle,
    latency,
    losses,
    memory,
    packages,
    pinned,
    report,
    sharding,
    stashing,
    swelling,
)
from .debezium import LOW_LATENCY, TUNED, DebeziumSide, Worker
from .readings import Book
from .servers import is_logical, servers
from .session import QUICK, Benchmark, Scale, Session
from .sides import Side
from .targets import PEER

BENCHMARKS: Final[Mapping[str, Benchmark]] = {
    floors.NAME: floors.run,
    backlog.NAME: backlog.run,
    latency.NAME: latency.run,
    catching_up.NAME: catching_up.run,
    stashing.NAME: stashing.run,
    consumers.NAME: consumers.run,
    losses.NAME: losses.run,
    memory.NAME: memory.run,
    idle.NAME: idle.run,
    growth.NAME: growth.run,
    sharding.NAME: sharding.run,
    pinned.NAME: pinned.run,
    swelling.NAME: swelling.run,
    packages.NAME: packages.run,
    crashes.NAME: crashes.run,
    failover.NAME: failover.run,
}
"""In the order in which they run."""

WITH_PEERS: Final = frozenset({backlog.NAME, latency.NAME, losses.NAME, crashes.NAME})
NOT_WARMED_UP: Final = frozenset(
    {floors.NAME, stashing.NAME, swelling.NAME, crashes.NAME, failover.NAME}
)

HUGE: Final = 10_000_000


def main(arguments: Sequence[str]) -> int:
    """Run what is asked for; return the exit code."""
    options = _parser().parse_args(arguments)
    chosen = [name for name in BENCHMARKS if name in (options.names or BENCHMARKS)]
    scale = QUICK if options.quick else Scale()
    if options.records:
        scale = replace(scale, records=options.records)
    if options.huge:
        scale = replace(scale, huge=HUGE)
    book = Book()
    if options.quick:
        book.remark(
            "A quick run: it shows that all works, its figures are worth nothing."
        )
    with (
        servers() as stack,
        _peers(book, chosen, wanted=options.peers) as (peers, quickest),
    ):
        session = Session(
            scale=scale,
            rounds=options.rounds or (1 if options.quick else 5),
            book=book,
            peers=peers,
            quickest=quickest,
            kafka=None if stack.kafka.source == "environment" else stack.kafka,
        )
        if not NOT_WARMED_UP.issuperset(chosen):
            print(f"warm-up, load {os.getloadavg()[0]:.1f}")
            backlog.warm_up(session)
        command = shlex.join(["python3", "tests/run.py", "--bench", *arguments])
        failed = []
        for name in chosen:
            if not _succeeds(name, session):
                failed.append(name)
            if options.write:
                # Whatever ends this run, what it has measured is there.
                report.write(book, command)
    print(report.printed(list(book.summaries())))
    return 1 if failed else 0


def _succeeds(name: str, session: Session) -> bool:
    """Run one benchmark; what an hour has measured outlives a failure of the next."""
    print(name)
    try:
        BENCHMARKS[name](session)
    except Exception as error:
        traceback.print_exc()
        cause = type(error).__name__
        session.book.remark(f"`{name}` has ended early ({cause}); see its output.")
        return False
    return True


@contextmanager
def _peers(
    book: Book, chosen: Sequence[str], *, wanted: bool
) -> Iterator[tuple[list[Side], list[Side]]]:
    """Provide Debezium: tuned for throughput, and tuned for latency."""
    if not wanted or WITH_PEERS.isdisjoint(chosen):
        yield [], []
        return
    if not is_logical():
        book.remark("Without Debezium: the server's wal_level is not `logical`.")
        yield [], []
        return
    try:
        worker = Worker()
    except (DevstackError, JarError) as error:
        book.remark(f"Without Debezium: {str(error).splitlines()[0]}")
        yield [], []
        return
    try:
        yield (
            [DebeziumSide(PEER, worker, TUNED)],
            [DebeziumSide(PEER, worker, LOW_LATENCY)],
        )
    finally:
        worker.close()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tests/run.py --bench",
        description="Measure; all benchmarks, or those that are named.",
    )
    parser.add_argument("names", nargs="*", metavar="name", choices=[[], *BENCHMARKS])
    parser.add_argument("--rounds", type=int, help="of each comparison (5)")
    parser.add_argument(
        "--quick", action="store_true", help="see that all works; measure nothing"
    )
    parser.add_argument("--records", type=int, help="of a backlog (200,000)")
    parser.add_argument(
        "--huge", action="store_true", help=f"grow to {HUGE:,} rows, too, once"
    )
    parser.add_argument(
        "--no-peers", dest="peers", action="store_false", help="leave Debezium out"
    )
    parser.add_argument(
        "--no-write", dest="write", action="store_false", help="leave the docs alone"
    )
    return parser
