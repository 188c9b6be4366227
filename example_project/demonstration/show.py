"""
Directs the demonstration and prints its result as a table.

`demo.py` calls `show()` once the environment stands.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from rich.console import Console

from django_outbox.devstack import devstack
from django_outbox.events import boottime_ns

from .verdict import Row, print_verdict

if TYPE_CHECKING:
    from .ledger import Orders

PROJECT = Path(__file__).resolve().parents[1]

REPORTS = PROJECT / "reports"
"""Where the pages of the audits are left."""

SETTLE_TIMEOUT = 60.0
"""Seconds until the table must be empty after the last order."""

LEADER_TIMEOUT = 30.0
"""Seconds until somebody must lead."""

MARGIN = 3.0
"""Seconds that a take-over may need beyond the session time-out."""


def show(*, seconds: float, rate: float, harvesters: int, delivery: str) -> int:
    """Run the demonstration; return the exit code."""
    console = Console()
    with devstack(progress=console.print) as stack:
        os.environ.update(stack.environment)
        os.environ["OUTBOX_DELIVERY"] = delivery
        # The audit compares with what the harvesters purged.
        os.environ["OUTBOX_ARCHIVE"] = "1"
        console.print("Migrating the database")
        manage = [sys.executable, str(PROJECT / "manage.py")]
        subprocess.run([*manage, "migrate", "--verbosity", "0"], check=True)

        import django

        os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
        django.setup()
        return _demonstrate(console, stack.bootstrap_servers, seconds, rate, harvesters)


def _demonstrate(
    console: Console,
    bootstrap_servers: str,
    seconds: float,
    rate: float,
    harvesters: int,
) -> int:
    # Django's models can be imported only now.
    from django_outbox.conf import settings

    from .ledger import Orders, are_charged, compare
    from .workers import CONSUMER, Workers

    names = [f"harvester-{number}" for number in range(1, harvesters + 1)]
    with Workers([*names, CONSUMER]) as workers:
        console.print(f"Starting {harvesters} harvesters and a consumer")
        leader = workers.wait_for_leader(timeout=LEADER_TIMEOUT)
        console.print(f"[bold]{leader['name']}[/bold] leads")
        placed = Orders(rate=rate)
        _watch(console, placed, seconds / 2)
        killed_at = boottime_ns()
        for name in (leader["name"], CONSUMER):
            workers.kill(name)
            console.print(f"[bold]{name}[/bold] killed (kill -9) and restarted")
            workers.start(name)
        successor = workers.wait_for_leader(after_ns=killed_at, timeout=LEADER_TIMEOUT)
        takeover = (successor["boottime_ns"] - killed_at) / 1e9
        console.print(f"[bold]{successor['name']}[/bold] leads after {takeover:.1f} s")
        _watch(console, placed, seconds / 2)
        placed.finish()
        console.print("Waiting until billing has charged all, and the table is empty")
        deadline = time.monotonic() + SETTLE_TIMEOUT
        while not are_charged(placed) and time.monotonic() < deadline:
            time.sleep(0.1)
    result = compare(placed, bootstrap_servers)
    most = settings.SESSION_TIMEOUT + MARGIN
    duplicates = 0 if settings.is_exactly_once else settings.MAX_IN_FLIGHT
    rows: list[Row] = [
        ("committed", f"{result.committed:,}", None),
        ("delivered", f"{result.delivered:,}", result.delivered == result.committed),
        ("lost", f"{result.lost:,}", result.lost == 0),
        ("rolled back, yet delivered", f"{result.phantoms:,}", result.phantoms == 0),
        ("out of order", f"{result.out_of_order:,}", result.out_of_order == 0),
        (
            f"duplicates (at most {duplicates:,})",
            f"{result.duplicates:,}",
            result.duplicates <= duplicates,
        ),
        (
            "orders that billing has charged once",
            f"{result.charged:,}",
            result.charged == len(placed.placed) and result.is_balanced,
        ),
        (f"take-over (at most {most:.0f} s)", f"{takeover:.1f} s", takeover <= most),
        *_audit(console, max_copies=duplicates),
    ]
    title = f"{settings.DELIVERY}: leader and consumer killed in the middle"
    code = print_verdict(console, title, rows)
    for page in sorted(REPORTS.glob("*.html")):
        console.print(f"Look at {page}", soft_wrap=True)
    return code


def _audit(console: Console, *, max_copies: int) -> list[Row]:
    """Bring the topics into a lake and audit it, and a copy with faults."""
    from django_outbox.exceptions import ConfigurationError
    from django_outbox.jars import JarError
    from django_outbox.pipeline.session import open_session

    from .lake import EXPECTED, expose, lake_settings, prove, wrong

    REPORTS.mkdir(exist_ok=True)
    for page in REPORTS.glob("*.html"):
        page.unlink()
    with TemporaryDirectory() as folder:
        settings = lake_settings(Path(folder))
        console.print("Starting Spark")
        try:
            spark = open_session(settings, progress=console.print)
        except (ConfigurationError, JarError) as error:
            console.print(f"No lake here: {error}")
            return []
        console.print("Bringing the topics into a lake, and auditing it")
        good = prove(spark, settings, REPORTS / "audit.html")
        console.print("Auditing a copy that was broken on purpose")
        bad = expose(spark, settings, REPORTS / "broken-copy.html")
        spark.stop()
    return [
        (
            "audit of topics, database and lake",
            f"{good.total('messages'):,}",
            good.exit_code(max_copies=max_copies) == 0,
        ),
        (
            "faults put into a copy, and found",
            ", ".join(f"{count} {name}" for name, count in wrong(bad).items()),
            wrong(bad) == EXPECTED,
        ),
    ]


def _watch(console: Console, placed: Orders, seconds: float) -> None:
    """Show for a while how many orders are placed and how many messages wait."""
    from django_outbox.models import OutboxRecord

    end = time.monotonic() + seconds
    with console.status("") as status:
        while (left := end - time.monotonic()) > 0:
            waiting = OutboxRecord.objects.count()
            status.update(
                f"{len(placed.placed):,} orders placed, "
                f"{waiting:,} messages wait in the outbox"
            )
            time.sleep(min(0.25, left))
