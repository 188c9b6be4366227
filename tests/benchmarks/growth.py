"""Whether a large backlog leaves the table as fast as a small one."""

from __future__ import annotations

from .backlog import drain
from .session import Session
from .sides import HARVESTERS
from .workload import Workload

NAME = "growth"


def run(session: Session) -> None:
    # All sizes in each round, so that all of them meet the same load.
    for _ in range(session.rounds):
        for records in session.scale.growth:
            _play(session, records)
    if session.scale.huge:
        # Once: it takes as long as all others together.
        _play(session, session.scale.huge)


def _play(session: Session, records: int) -> None:
    workload = Workload(name=f"{records:,} rows", records=records)
    for side in HARVESTERS:
        drain(session.book, side, workload, benchmark=NAME)
