"""
What it costs an application to write a message.

`stash()` in a transaction of its own against a plain ORM insert of the same
row, call by call in turn; `stash_many()` against COPY of the same rows.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from uuid import uuid4

from ..processes import ROOT
from .session import Session
from .workload import empty

NAME = "stashing"
DURABLE, QUICK = "one row, commit to disk", "one row, commit in memory"
MANY = "many rows, one transaction"
"""The cases."""

REPEATS = 5
"""Transactions of many rows, of each side in turn."""
BLOCK = 50
"""Calls of one side before the other one's turn: a commit waits for the disk, and
the disk has moods."""

VALUE = "x" * 200


def run(session: Session) -> None:
    set_up()
    calls = session.scale.calls
    for _ in range(session.rounds):
        one_by_one(session, calls)
        many(session, 10 * calls)
    empty()


def one_by_one(session: Session, calls: int) -> None:
    """Note the median time of a call, its commit included."""
    from django.db import connection, transaction

    from django_outbox import stash
    from django_outbox.models import OutboxRecord

    def stashed() -> None:
        with transaction.atomic():
            stash("bench", key="key", value=VALUE, headers={"kind": "benchmark"})

    def inserted() -> None:
        with transaction.atomic():
            OutboxRecord.objects.create(
                kafka_topic="bench",
                kafka_key="key",
                kafka_value=VALUE,
                kafka_header_keys=["kind"],
                kafka_header_values=["benchmark"],
                message_id=uuid4(),
            )

    sides = {"stash()": stashed, "ORM insert": inserted}
    times: dict[str, list[float]] = {side: [] for side in sides}
    for durable in (True, False):
        case = DURABLE if durable else QUICK
        with connection.cursor() as cursor:
            cursor.execute("TRUNCATE outbox")
            cursor.execute(f"SET synchronous_commit = {'on' if durable else 'off'}")
        for taken in times.values():
            taken.clear()
        for _ in range(calls // BLOCK):
            for side, call in sides.items():
                times[side] += [_timed(call) for _ in range(BLOCK)]
        for side, taken in times.items():
            typical = 1e6 * statistics.median(taken)
            session.book.note(NAME, case, side, typical, "µs", figure="a call")
    with connection.cursor() as cursor:
        cursor.execute("RESET synchronous_commit")


def many(session: Session, rows: int) -> None:
    """Note rows each second, of one transaction."""
    from django.db import connection, transaction

    from django_outbox import Message, stash_many

    def stashed() -> None:
        with transaction.atomic():
            headers = {"kind": "benchmark"}
            stash_many(
                Message("bench", key=f"key-{n % 1000}", value=VALUE, headers=headers)
                for n in range(rows)
            )

    def copied() -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            statement = (
                "COPY outbox (kafka_topic, kafka_key, kafka_value, kafka_header_keys,"
                " kafka_header_values, message_id) FROM STDIN"
            )
            with cursor.cursor.copy(statement) as copy:
                for n in range(rows):
                    key = f"key-{n % 1000}"
                    headers = (["kind"], ["benchmark"])
                    copy.write_row(("bench", key, VALUE, *headers, uuid4()))

    sides = {"stash_many()": stashed, "COPY": copied}
    times: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(REPEATS):
        for side, call in sides.items():
            with connection.cursor() as cursor:
                cursor.execute("TRUNCATE outbox")
            times[side].append(_timed(call))
    for side, taken in times.items():
        session.book.note(NAME, MANY, side, rows / statistics.median(taken), "rows/s")


def _timed(call: Callable[[], None]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def set_up() -> None:
    """Be a process of the example project."""
    import django

    sys.path.append(str(ROOT / "example_project"))
    os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
    django.setup()
