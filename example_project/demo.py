"""
The outbox at work: `python3 example_project/demo.py`.

Act 1, the outbox: starts PostgreSQL and Kafka, migrates, runs three harvesters
and a consumer, places orders at a steady rate, kills the leader and the consumer
in the middle, reads every message back from Kafka, and prints what became of the
promises. Act 2, the lake: brings the messages into tables and audits them, and a
copy that it has broken. Exits 1 if a promise was broken.

Installs what is missing into `.venv`: first what act 1 needs, and Spark while
act 1 runs. Nothing ends because it takes long; only what no longer moves.

`--clusters 3` shows something else: three databases that replicate to each
other, each with harvesters of its own, and what becomes of the records of one
when all its harvesters are killed.
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
"""Variable for the same script in the environment that it has made: when."""

FIRST = """\
  install    about 50 MB of Python packages, 45 MB of Java archives: about 30 s
"""

SECOND = """\
  meanwhile  Spark is installed: about 480 MB of Python packages, 24 MB of Java
             archives; --no-lake leaves out this and act 2
"""

TIMES = """\
Times are for two free cores and a fast network. A slow machine takes longer and
shows the same: a wait ends early only when nothing has moved for a minute.

"""


def main() -> int:
    """Return the exit code: 1 when a promise was broken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="how long to place orders"
    )
    parser.add_argument("--rate", type=float, default=60.0, help="orders a second")
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
    parser.add_argument(
        "--no-lake",
        action="store_true",
        help="end after act 1; Spark is not installed",
    )
    arguments = parser.parse_args()
    # A supervisor or a closed terminal ends all that was started, as Ctrl-C does.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        sys.stderr.write("\nInterrupted. Nothing is left running.\n")
        return 130


def _run(arguments: argparse.Namespace) -> int:
    has_lake = not (arguments.no_lake or arguments.clusters)
    if BEGUN not in os.environ:
        os.environ[BEGUN] = str(time.monotonic())
        _announce(arguments, has_lake=has_lake)
    ensure_environment("demo")
    from django_outbox.exceptions import OutboxError

    try:
        code = _show(arguments, has_lake=has_lake)
    except OutboxError as error:
        sys.stderr.write(f"The demonstration cannot go on. {error}\n")
        return 1
    took = time.monotonic() - float(os.environ[BEGUN])
    sys.stdout.write(f"All of it took {took:.0f} s.\n")
    return code


def _announce(arguments: argparse.Namespace, *, has_lake: bool) -> None:
    """Say what is downloaded and how long it takes, before anything begins."""
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
        lines.append("  act 2      the lake: about 70 s\n")
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
