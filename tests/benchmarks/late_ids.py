"""
What `stash_at_commit()` changes for transactions that go on after their messages.

    python -m tests.benchmarks.late_ids --rounds 3

Eight writers, five messages a transaction, and 2 ms of other work after them. A row is
overtaken when another transaction commits a row with a later id before it.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from .servers import connect, servers
from .stashing import VALUE, set_up

WRITERS = 8
ROWS = 5
WORK = 0.002
"""Seconds."""


def measured(write: Callable[[str], object], transactions: int) -> tuple[float, float]:
    """Return transactions a second, and the share of rows that were overtaken."""
    from django.db import connection, connections, transaction

    committed: list[str] = []
    lock = threading.Lock()

    def work(writer: int) -> None:
        for number in range(transactions // WRITERS):
            keys = [f"{writer}-{number}-{n}" for n in range(ROWS)]
            with transaction.atomic():
                for key in keys:
                    write(key)
                with connection.cursor() as cursor:
                    cursor.execute("SELECT pg_sleep(%s)", [WORK])
            with lock:
                committed.extend(keys)
        connections.close_all()

    with connect() as observer:
        observer.execute("TRUNCATE outbox")
        began = time.perf_counter()
        with ThreadPoolExecutor(WRITERS) as pool:
            for result in [pool.submit(work, writer) for writer in range(WRITERS)]:
                result.result()
        taken = time.perf_counter() - began
        ids: dict[str, int] = dict(
            observer.execute("SELECT kafka_key, id FROM outbox").fetchall()
        )
        observer.execute("TRUNCATE outbox")
    assert len(ids) == len(committed)
    overtaken, latest = 0, 0
    for key in committed:
        overtaken += ids[key] < latest
        latest = max(latest, ids[key])
    return len(committed) / ROWS / taken, overtaken / len(committed)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--transactions", type=int, default=4_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()

    with servers():
        set_up()
        from django.db import connections

        from django_outbox import Message, stash
        from django_outbox.contrib.late_ids import ENGINE, stash_at_commit

        # The threads of the writers open connections of their own, with this backend.
        connections.settings["default"]["ENGINE"] = ENGINE

        def late(key: str) -> None:
            stash_at_commit(Message("bench", key=key, value=VALUE))

        def early(key: str) -> None:
            stash("bench", key=key, value=VALUE)

        sides = {"stash()": early, "stash_at_commit()": late}
        found: dict[str, list[tuple[float, float]]] = {side: [] for side in sides}
        for _ in range(arguments.rounds):
            for side, write in sides.items():
                found[side].append(measured(write, arguments.transactions))
        for side, results in found.items():
            rate, share = map(statistics.median, zip(*results, strict=True))
            print(f"{side:<20}{rate:>8,.0f} transactions/s, {share:.1%} overtaken")


if __name__ == "__main__":
    main()
