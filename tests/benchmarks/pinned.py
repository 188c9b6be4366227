"""
What one forgotten transaction does: nothing that was deleted can be cleaned up.

First the harvester drains a backlog with and without such a transaction. Then
the table alone, without Kafka, is marked and purged page by page, and each
mark is timed: it must not grow with the dead rows.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from multiprocessing import get_context

import psycopg

from django_outbox.clock import boottime
from django_outbox.harvester.process import rare_garbage_collection
from django_outbox.postgres.connection import Database
from django_outbox.postgres.unmarked_table import UnmarkedOutbox
from django_outbox.relay.memory_marks import MemoryMarks

from .backlog import drain
from .readings import Book, percentile
from .session import Session
from .sides import AT_LEAST_ONCE, EXACTLY_ONCE
from .workload import Workload, empty

NAME = "pinned"
PAGE = 1000

FREE, PINNED = "nothing open", "an old transaction open"


def run(session: Session) -> None:
    records = session.scale.dead
    for _ in range(session.rounds):
        for case, guard in ((FREE, nullcontext), (PINNED, old_transaction)):
            workload = Workload(name=case, records=records)
            for side in (AT_LEAST_ONCE, EXACTLY_ONCE):
                with guard():
                    drain(session.book, side, workload, benchmark=NAME)
            workload.fill("bench-marks")
            with guard():
                marks(session.book, replace(workload, name=f"{case}, table alone"))
            empty()


@contextmanager
def old_transaction() -> Iterator[None]:
    """Keep a snapshot that needs every row which is there now."""
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        # Of another table, so that the next TRUNCATE need not wait for it.
        connection.execute("SELECT count(*) FROM pg_class")
        yield


def marks(book: Book, workload: Workload) -> None:
    """Mark and purge the whole table, timing each mark."""
    # In a process of its own, as a harvester is: this one's garbage collector has
    # what all earlier benchmarks have left to look through.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
        times, seconds = alone.submit(_mark_all, os.environ["DATABASE_URL"]).result()
    side = "at-least-once"
    book.note(NAME, workload.name, side, workload.records / seconds)
    tenth = max(1, len(times) // 10)
    for figure, part in (
        ("first tenth", times[:tenth]),
        ("last tenth", times[-tenth:]),
    ):
        p99 = percentile(part, 0.99)
        book.note(NAME, workload.name, side, p99, "ms", figure=f"mark p99, {figure}")


def _mark_all(conninfo: str) -> tuple[list[float], float]:
    """Return the milliseconds of each mark, and the seconds of all with the purges."""
    table = UnmarkedOutbox(Database({"conninfo": conninfo}))
    marks = MemoryMarks(table, clock=boottime, timeline=table.pooled_timeline)
    leader_id = "00000000-0000-4000-8000-000000000001"
    times: list[float] = []
    began = time.monotonic()
    with rare_garbage_collection():
        while True:
            asked = time.monotonic()
            records = marks.mark(leader_id, limit=PAGE)
            times.append(1000 * (time.monotonic() - asked))
            if not records:
                break
            assert table.purge(leader_id, records) == len(records)
    seconds = time.monotonic() - began
    table.close()
    return times, seconds
