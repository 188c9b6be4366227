"""
The outbox at work: `python3 example_project/demo.py`.

Starts PostgreSQL and Kafka, migrates, runs three harvesters and a consumer,
places orders at a steady rate, kills the leader and the consumer in the middle,
reads every message back from Kafka, brings them into a lake and audits it, and
a copy that it has broken, and prints what became of the promises. Exits 1 if
one was broken.

`--clusters 3` shows something else: three databases that replicate to each
other, each with harvesters of its own, and what becomes of the records of one
when all its harvesters are killed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Python puts this script's folder first; a checkout needs no installation.
sys.path.insert(0, str(ROOT))

from django_outbox.devstack.bootstrap import ensure_environment  # noqa: E402


def main() -> int:
    """Return the exit code: 1 when a promise was broken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="how long to place orders"
    )
    parser.add_argument("--rate", type=float, default=100.0, help="orders a second")
    parser.add_argument("--harvesters", type=int, default=3, help="processes to start")
    parser.add_argument(
        "--delivery",
        choices=("at-least-once", "exactly-once"),
        default="at-least-once",
        help="how the harvesters relay",
    )
    parser.add_argument(
        "--clusters",
        type=int,
        choices=range(2, 6),
        help="show so many active clusters instead, with two harvesters each",
    )
    arguments = parser.parse_args()
    ensure_environment("demo")

    if arguments.clusters:
        from demonstration.clusters import show_clusters

        return show_clusters(
            count=arguments.clusters,
            seconds=arguments.seconds,
            rate=arguments.rate,
            delivery=arguments.delivery,
        )
    from demonstration.show import show

    return show(
        seconds=arguments.seconds,
        rate=arguments.rate,
        harvesters=arguments.harvesters,
        delivery=arguments.delivery,
    )


if __name__ == "__main__":
    sys.exit(main())
