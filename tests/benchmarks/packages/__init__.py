"""
How fast other published packages drain their outboxes, beside ours.

Each has its own table, filled in its own way, and its own relay command, which
runs as a process of a project that has nothing of ours. They are slow, so the
backlog is small.
"""

from __future__ import annotations

from dataclasses import replace

from ..backlog import compare
from ..session import Session
from ..sides import AT_LEAST_ONCE, Side
from ..workload import Workload
from .environment import PackagesError, ensure
from .sides import all_sides, database

NAME = "packages"
ROUNDS = 3
"""At most: the rates of packages lie further apart than those of rounds."""


def run(session: Session) -> None:
    try:
        python = ensure(progress=print)
    except PackagesError as error:
        session.book.remark(f"Without other published packages: {error}")
        return
    records = session.scale.packages
    workload = Workload(name=f"{records:,} rows", records=records)
    few = replace(session, rounds=min(session.rounds, ROUNDS))
    with database() as url:
        taking_part: list[Side] = [AT_LEAST_ONCE, *all_sides(python, url)]
        compare(few, workload, taking_part, benchmark=NAME)
