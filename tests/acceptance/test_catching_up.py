"""
How soon a backlog is gone: after a late start, after a crash, after a pause.

Its records belong to few keys, and more of them come all the time. A relay that sends
one record of a key at a time would need many times as long.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from ..machine import nightly
from ..services import Topics
from .auditing import audit, deliveries
from .harvesters import Harvesters
from .lag import Measure
from .tables import OutboxTable
from .writing import Writers

KEYS = 60
RATE = 545
"""Records a second."""

INTERVAL = 0.1
"""Seconds between two commits."""


@contextmanager
def stream(writers: Writers) -> Iterator[None]:
    """Commit at the rate until the block ends."""
    stop = threading.Event()

    def write() -> None:
        begin, written = time.monotonic(), 0
        while not stop.wait(INTERVAL):
            due = int(RATE * (time.monotonic() - begin)) - written
            writers.burst(due)
            written += due

    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(write)
        try:
            yield
        finally:
            stop.set()
        writing.result()


@pytest.mark.parametrize(
    "stop",
    ["late start", *(pytest.param(how, marks=nightly) for how in ("crash", "pause"))],
)
def test_a_backlog_is_gone_a_moment_after_the_stop(
    harvesters: Harvesters,
    table: OutboxTable,
    topics: Topics,
    topic: str,
    measure: Measure,
    stop: str,
) -> None:
    writers = Writers(table, topic, writers=0, keys=KEYS)
    leader = None if stop == "late start" else harvesters.start_ready(2)[0]
    with stream(writers):
        writers.wait_for(RATE)
        if leader is None:
            harvesters.start_ready(1)
        else:
            stopped_at = leader.kill() if stop == "crash" else leader.pause()
            harvesters.wait_for_leader(after=stopped_at)
        writers.wait_for(3 * RATE)
    if stop == "pause" and leader:
        leader.resume()
    table.wait_until_empty()

    sent = deliveries(topics.read(topic))
    assert audit(writers.ledger, sent).broken == {}
    stopped, caught_up = measure(writers.ledger, sent).longest_stop()
    assert stopped > 1.0
    assert caught_up <= stopped / 10 + 1
