"""
The outbox at work: `python3 example_project/demo.py`.

Act 1, the outbox: starts PostgreSQL and Kafka, migrates, runs three harvesters
and a consumer, places orders at a steady rate, kills the leader and the consumer
halfway, reads every message back from Kafka, and prints which promises were
kept. Act 2, the lake: loads the messages into tables and audits them, and a copy
with deliberate faults; then loses its checkpoints, and recreates a topic. Exits 1
if a promise was broken.

Installs missing packages into `.venv`: first those of act 1, and Spark while
act 1 runs. No step has a fixed time limit; a step fails when it makes no progress.

`--clusters 3` shows something else: three databases that replicate to each
other, each with its own harvesters, and how the records of one cluster are
taken over when all its harvesters are killed.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Python puts this script's folder first; a checkout needs no installation.
sys.path.insert(0, str(ROOT))

from django_outbox.devstack.bootstrap import ensure_environment, is_complete  # noqa: E402

BEGUN = "DJANGO_OUTBOX_DEMO_BEGUN"
"""Start time, passed on when the script restarts in its own environment."""

LEAST_ORDERS = 60
"""Orders of which act 2 can lose, double and swap some: of ten it may find too few."""

FIRST = """\
  install    about 50 MB of Python packages, 45 MB of Java archives: about 30 s
"""

SECOND = """\
  meanwhile  Spark is installed: about 480 MB of Python packages, 24 MB of Java
             archives; --no-lake leaves out this and act 2
"""

TIMES = """\
Times are for two free cores and a fast network. A slow machine takes longer; a
step is only given up when it has made no progress for a minute.

"""


def _above_zero(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} must be a number above 0")
    return number


def main() -> int:
    """Return the exit code: 1 when a promise was broken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--seconds",
        type=_above_zero,
        default=20.0,
        help="how long to place orders; default: %(default)s",
    )
    parser.add_argument(
        "--rate",
        type=_above_zero,
        default=60.0,
        help="orders per second; default: %(default)s",
    )
    parser.add_argument(
        "--harvesters",
        type=int,
        choices=range(1, 10),
        metavar="N",
        default=3,
        help="number of harvester processes; default: %(default)s",
    )
    parser.add_argument(
        "--delivery",
        choices=("at-least-once", "exactly-once"),
        default="at-least-once",
        help="delivery guarantee of the harvesters; default: %(default)s",
    )
    parser.add_argument(
        "--clusters",
        type=int,
        choices=range(2, 6),
        help="show this number of clusters instead, with two harvesters each",
    )
    parser.add_argument(
        "--no-lake",
        action="store_true",
        help="stop after act 1, without installing Spark",
    )
    arguments = parser.parse_args()
    has_lake = not (arguments.no_lake or arguments.clusters)
    if has_lake and arguments.seconds * arguments.rate < LEAST_ORDERS:
        parser.error(
            f"--seconds times --rate must be at least {LEAST_ORDERS} orders, so that "
            "act 2 can put its faults into a copy of them; or pass --no-lake"
        )
    # A supervisor or a closed terminal stops everything, as Ctrl-C does.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    try:
        return _run(arguments, has_lake=has_lake)
    except KeyboardInterrupt:
        sys.stderr.write("\nInterrupted. Nothing is left running.\n")
        return 130


def _run(arguments: argparse.Namespace, *, has_lake: bool) -> int:
    if BEGUN not in os.environ:
        os.environ[BEGUN] = str(time.monotonic())
        _announce(arguments, has_lake=has_lake)
    ensure_environment("demo")
    from django_outbox.exceptions import OutboxError

    try:
        code = _show(arguments, has_lake=has_lake)
    except OutboxError as error:
        sys.stderr.write(f"The demo failed: {error}\n")
        return 1
    took = time.monotonic() - float(os.environ[BEGUN])
    sys.stdout.write(f"Total time: {took:.0f} s.\n")
    return code


def _announce(arguments: argparse.Namespace, *, has_lake: bool) -> None:
    """Print what will be downloaded and how long it will take."""
    lines = ["django-outbox at work\n"]
    if not is_complete("demo"):
        lines.append(FIRST)
    if arguments.clusters:
        took = 1.25 * arguments.seconds + 30
        lines.append(
            f"  show       {arguments.clusters} clusters: about {took:.0f} s\n"
        )
    else:
        lines.append(f"  act 1      the outbox: about {arguments.seconds + 40:.0f} s\n")
    if has_lake and not is_complete("demo-lake"):
        lines.append(SECOND)
    if has_lake:
        lines.append("  act 2      the lake: about 150 s\n")
    sys.stdout.write("".join([*lines, TIMES]))
    sys.stdout.flush()


def _show(arguments: argparse.Namespace, *, has_lake: bool) -> int:
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
        has_lake=has_lake,
    )


if __name__ == "__main__":
    sys.exit(main())
