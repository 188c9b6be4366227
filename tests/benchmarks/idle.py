"""
What a leader costs that has nothing to do.

Statements are counted by the server, as transactions of the database: each of
the harvester's statements is one. The question itself is asked elsewhere.
"""

from __future__ import annotations

import os
import threading
import time

import psycopg

from .session import Session
from .sides import HARVESTERS, HarvesterSide
from .workload import empty

NAME = "idle"
SETTLED = 3.0
"""Seconds after which nothing of the start is left to do."""

_COUNT = """
SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = %s
"""


def run(session: Session) -> None:
    for _ in range(session.rounds):
        for side in HARVESTERS:
            play(session, side)


def play(session: Session, side: HarvesterSide) -> None:
    """Watch one harvester do nothing; note its CPU and its statements."""
    pause = threading.Event()
    empty()
    with side.running() as harvester:
        pause.wait(SETTLED)
        begun, cpu, statements = time.monotonic(), harvester.cpu_seconds(), _count()
        pause.wait(session.scale.idle)
        statements = _count() - statements
        cpu = harvester.cpu_seconds() - cpu
        seconds = time.monotonic() - begun
    book = session.book
    share = 100 * cpu / seconds
    book.note(NAME, "nothing to do", side.name, share, "% of a core", figure="CPU")
    rate = statements / seconds
    book.note(NAME, "nothing to do", side.name, rate, "1/s", figure="statements")


def _count() -> int:
    """Ask from another database, so that asking does not count."""
    url, _, name = os.environ["DATABASE_URL"].rpartition("/")
    with psycopg.connect(f"{url}/postgres", autocommit=True) as connection:
        row = connection.execute(_COUNT, [name]).fetchone()
    return int(row[0]) if row else 0
