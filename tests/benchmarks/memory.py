"""
How much memory a harvester holds when values are large.

The backlog is larger than the bound on what may be in flight: a relay that
counts records alone would hold hundreds of megabytes of it.
"""

from __future__ import annotations

from .backlog import compare
from .session import Session
from .sides import HARVESTERS
from .workload import Workload

NAME = "memory"
CASE = "900 KB values"
SHARE = 400
"""One record in so many of the other backlogs: half a gigabyte."""


def run(session: Session) -> None:
    records = max(1, session.scale.records // SHARE)
    workload = Workload(name=CASE, records=records, size=900_000)
    compare(session, workload, HARVESTERS, benchmark=NAME)
