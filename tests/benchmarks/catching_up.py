"""
How long a leader that takes over needs until it has caught up.

Writers commit 545 records a second over 60 keys. The leader is killed; until
its session has timed out, six seconds of backlog pile up, and writing goes on.
The time runs from the first delivery after that until no record is late any
more.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from uuid import uuid4

from ..waiting import eventually
from . import traffic
from .session import Session
from .sides import HARVESTERS, HarvesterSide, in_turn
from .workload import empty, new_topic

NAME = "catching-up"
CASE = "545/s, 60 keys, leader killed"
WORK = traffic.Traffic(seconds=0, rate=545, keys=60)
BEFORE = 3.0
"""Seconds of steady work before the leader is killed."""
LATE = 0.25
"""Seconds from commit to delivery that are normal for every side."""


def run(session: Session) -> None:
    in_turn(HARVESTERS, session.rounds, lambda side: play(session, side))


def play(session: Session, side: HarvesterSide) -> None:
    """Kill a leader under traffic; note how the next one catches up."""
    topic, group = new_topic(), f"bench-{uuid4()}"
    work = replace(WORK, seconds=BEFORE + session.scale.catching_up)
    empty()
    with (
        traffic.watched(topic) as witness,
        side.start(name="first", group=group) as first,
        side.start(name="second", group=group) as second,
    ):
        eventually(lambda: first.leads or second.leads)
        leader, standby = (first, second) if first.leads else (second, first)
        standby.wait_for("ready")
        writing = threading.Thread(target=traffic.write, args=(topic, work, witness))
        writing.start()
        time.sleep(BEFORE)  # the subject: a leader at work
        leader.kill()
        killed = time.monotonic()
        writing.join()
    empty()
    assert not witness.lost, f"{side.name}: {witness.lost} records are lost"
    began, done = caught_up(witness.committed, witness.seen, since=killed)
    backlog = sum(killed <= at < began for at in witness.committed.values())
    book = session.book
    book.note(NAME, CASE, side.name, began - killed, "s", figure="without delivery")
    book.note(NAME, CASE, side.name, backlog, "records", figure="backlog")
    book.note(NAME, CASE, side.name, done - began, "s", figure="until caught up")


def caught_up(
    committed: Mapping[int, float], seen: Mapping[int, float], *, since: float
) -> tuple[float, float]:
    """
    Return the first delivery of what was committed since, and when none was late.

    When everything was late until the end, the second moment is the last delivery.
    """
    times = sorted((at, seen[id]) for id, at in committed.items() if at >= since)
    first = min(delivered for _, delivered in times)
    last = first
    for at, delivered in times:
        last = max(last, delivered)
        # All that was committed before this one has been delivered, too.
        if last - at <= LATE:
            break
    return first, last
