"""
How long a committed record takes until a consumer sees it.

    python -m tests.benchmarks.latency --delivery exactly-once --rate 1000

Writers commit transactions of one row each; a consumer reads the topic as the
mode asks for. A record's latency runs from the return of its commit to the
consumer's poll that gives it. What is written in the first seconds is not
counted.
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


def run(session: Session) -> None:
    for rate in session.scale.rates:
        print(f"latency: {rate:,} transactions/s")
        sides: list[Side] = [*HARVESTERS, NOTIFIED, *session.quickest]
        in_turn(
            sides,
            session.rounds,
            lambda side, rate=rate: play(session, side, rate),  # type: ignore[misc]
        )


def play(session: Session, side: Side, rate: int, *, writers: int = 4) -> None:
    """Let one side relay while writers write; note percentiles."""
    scale = session.scale
    seconds = scale.warm_up + scale.steady
    work = traffic.Traffic(
        seconds=seconds, rate=rate, writers=writers, notifies=side is NOTIFIED
    )
    topic = new_topic()
    empty()
    with side.running(topic) as running, traffic.watched(topic) as witness:
        began, cpu = time.monotonic(), running.cpu_seconds()
        traffic.write(topic, work, witness)
        share = (running.cpu_seconds() - cpu) / (time.monotonic() - began)
    empty()
    assert not witness.lost, f"{side.name}: {witness.lost} records are lost"
    assert not witness.phantoms, f"{side.name}: {witness.phantoms} were not committed"
    begin = min(witness.committed.values()) + scale.warm_up
    counted = {i: at for i, at in witness.committed.items() if at >= begin}
    delays = [1000 * (witness.seen[i] - at) for i, at in counted.items()]
    case = f"{rate:,}/s"
    reached = len(counted) / (max(counted.values()) - begin)
    book = session.book
    book.note(NAME, case, side.name, reached, figure="rate reached")
    for figure, part in SHARES.items():
        book.note(NAME, case, side.name, percentile(delays, part), "ms", figure=figure)
    book.note(NAME, case, side.name, 100 * share, "% of a core", figure="CPU")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--delivery", default="at-least-once")
    parser.add_argument("--notify", action="store_true", help="at-least-once, NOTIFY")
    parser.add_argument("--rate", type=int, default=1000, help="records a second")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--writers", type=int, default=4)
    arguments = parser.parse_args()
    delivery = arguments.delivery
    side = HarvesterSide(delivery, {"OUTBOX_DELIVERY": delivery})
    if arguments.notify:
        side = NOTIFIED
    session = Session(scale=replace(Scale(), steady=arguments.seconds), rounds=1)
    with servers():
        warm_up(session)
        play(session, side, arguments.rate, writers=arguments.writers)


if __name__ == "__main__":
    main()
