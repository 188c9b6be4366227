"""
How long a committed record takes until a consumer sees it.

    python -m tests.benchmarks.latency --delivery exactly-once --rate 1000

Four writers commit transactions of one row each. From 5,000 records a second on
one writer commits ten rows at once instead: four would need the two cores that
the relay runs on. What the writers and the reader use is measured, too.

A record's latency runs from the return of its commit to the consumer's poll
that gives it. What is written in the first seconds is not counted. The rate
reached is that of the deliveries: a relay that falls behind does not reach it.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

from . import traffic
from .backlog import warm_up
from .readings import percentile
from .servers import servers
from .session import Scale, Session
from .sides import HARVESTERS, NOTIFIED, HarvesterSide, Side, in_turn
from .workload import empty, new_topic

NAME = "latency"
SHARES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
FAST = 5_000
"""Records a second from which on the writer has to be cheap."""
BATCH = 10
"""Rows of its INSERTs."""


def run(session: Session) -> None:
    for rate in session.scale.rates:
        print(f"latency: {rate:,} transactions/s")
        notified = [NOTIFIED] if rate < FAST else []
        sides: list[Side] = [*HARVESTERS, *notified, *session.quickest]
        in_turn(
            sides,
            session.rounds,
            lambda side, rate=rate: play(session, side, rate),  # type: ignore[misc]
        )


def play(session: Session, side: Side, rate: int) -> None:
    """Let one side relay while writers write; note percentiles."""
    scale = session.scale
    work = traffic.Traffic(
        seconds=scale.warm_up + scale.steady, rate=rate, notifies=side is NOTIFIED
    )
    if rate >= FAST:
        work = replace(work, rate=rate / BATCH, batch=BATCH, writers=1)
    topic = new_topic()
    empty()
    with side.running(topic) as running, traffic.watched(topic) as witness:
        began, cpu = time.monotonic(), running.cpu_seconds()
        traffic.write(topic, work, witness)
        share = (running.cpu_seconds() - cpu) / (time.monotonic() - began)
    empty()
    generator = witness.cpu_seconds / work.seconds
    assert not witness.lost, f"{side.name}: {witness.lost} records are lost"
    assert not witness.phantoms, f"{side.name}: {witness.phantoms} were not committed"
    begin = min(witness.committed.values()) + scale.warm_up
    counted = {i: at for i, at in witness.committed.items() if at >= begin}
    delays = [1000 * (witness.seen[i] - at) for i, at in counted.items()]
    case = f"{rate:,}/s"
    written = len(counted) / (max(counted.values()) - begin)
    end = max(witness.seen[id] for id in counted)
    book = session.book

    def note(figure: str, value: float, unit: str) -> None:
        book.note(NAME, case, side.name, value, unit, figure=figure)

    note("rate written", 100 * written / rate, "%")
    note("rate reached", 100 * len(counted) / (end - begin) / rate, "%")
    for figure, part in SHARES.items():
        note(figure, percentile(delays, part), "ms")
    note("CPU", 100 * share, "% of a core")
    note("CPU of writers and reader", 100 * generator, "% of a core")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--delivery", default="at-least-once")
    parser.add_argument("--notify", action="store_true", help="at-least-once, NOTIFY")
    parser.add_argument("--rate", type=int, default=1000, help="records a second")
    parser.add_argument("--seconds", type=float, default=20.0)
    arguments = parser.parse_args()
    delivery = arguments.delivery
    side = HarvesterSide(delivery, {"OUTBOX_DELIVERY": delivery})
    if arguments.notify:
        side = NOTIFIED
    session = Session(scale=replace(Scale(), steady=arguments.seconds), rounds=1)
    with servers():
        warm_up(session)
        play(session, side, arguments.rate)


if __name__ == "__main__":
    main()
