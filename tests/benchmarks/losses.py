"""
Whether a relay that is fast loses rows: it is counted, beside every speed.

Four writers commit rows out of id order: transactions of several rows stay
open for up to 10 ms while others draw ids and commit. A relay that follows the
highest id it has seen (`bare cursor`) loses some of such rows without a fault;
that it does here shows that the count would find it.
"""

from __future__ import annotations

from . import traffic
from .naive import CursorSide
from .session import Session
from .sides import HARVESTERS, Side
from .workload import empty, new_topic

NAME = "losses"
RATE = 600.0
"""Transactions a second, of two rows and a half."""
HOLD = 0.01
"""Seconds between a transaction's rows and its commit, at most."""


def run(session: Session) -> None:
    for side in (*HARVESTERS, *session.peers, CursorSide()):
        count(session, side, beside=NAME)


def count(session: Session, side: Side, *, beside: str) -> None:
    """Relay while writers write; note what is lost, and what came twice."""
    work = traffic.Traffic(
        seconds=session.scale.losses, rate=RATE, writers=4, rows=4, hold=HOLD
    )
    topic = new_topic()
    empty()
    with side.running(topic), traffic.watched(topic) as witness:
        traffic.write(topic, work, witness)
    case = "4 concurrent writers"
    committed = len(witness.committed)
    session.book.note(beside, case, side.name, committed, "records", figure="committed")
    session.book.note(beside, case, side.name, witness.lost, "records", figure="lost")
    session.book.note(
        beside, case, side.name, witness.repeats, "records", figure="delivered again"
    )
    empty()
