"""
Act 1: orders, harvesters and billing, and a check of the promises.

Orders are placed at a steady rate; halfway the leader and the consumer are
killed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rich.console import Console

from django_outbox.clock import boottime_ns
from django_outbox.devstack.waiting import wait_while_moving

from .liveline import LiveLine
from .verdict import Row, in_time, print_verdict
from .workers import CONSUMER, Workers

if TYPE_CHECKING:
    from .ledger import Comparison, Orders

MARGIN: Final = 3.0
"""Seconds that a takeover may take beyond the session time-out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of act 1."""

    code: int
    """1 if a promise was broken, else 0."""
    most_duplicates: int
    """How many duplicates the takeovers may have caused."""


def show_outbox(
    console: Console,
    bootstrap_servers: str,
    *,
    seconds: float,
    rate: float,
    harvesters: int,
    note: Callable[[], str],
) -> Outcome:
    """Run act 1; Django must be set up and the database migrated."""
    # These modules need Django's models.
    from django_outbox.conf import settings

    from .ledger import Orders, compare, settled

    names = [f"harvester-{number}" for number in range(1, harvesters + 1)]
    with ExitStack() as running:
        console.print(f"Starting {harvesters} harvesters and a consumer")
        workers = running.enter_context(Workers([*names, CONSUMER]))
        line = running.enter_context(LiveLine(console, note=note))
        line.show("waiting for the processes and an election")
        workers.wait_until_ready()
        console.print(f"[bold]{workers.leader()}[/bold] leads")
        placed = Orders(rate=rate)
        # Registered before the start: Ctrl-C may come at any moment.
        running.callback(placed.finish)
        placed.start()
        _watch(line, placed, seconds / 2)

        leader, killed_at = workers.leader(), boottime_ns()
        for name in (leader, CONSUMER):
            workers.kill(name)
            console.print(f"[bold]{name}[/bold] killed (kill -9) and restarted")
            workers.start(name)
        successor = workers.wait_for(
            "leader_acquired",
            after_ns=killed_at,
            shows=lambda: line.show(f"{_count(placed)}; no leader"),
        )
        takeover = (successor["boottime_ns"] - killed_at) / 1e9
        console.print(f"[bold]{successor['name']}[/bold] leads after {takeover:.1f} s")
        _watch(line, placed, seconds / 2)
        placed.finish()

        console.print("Waiting for billing to charge all orders")
        wait_while_moving(
            lambda: settled(placed).is_over,
            what="billing to charge all orders, and the outbox to be empty",
            progress=lambda: (settled(placed), workers.progress()),
            shows=lambda: line.show(str(settled(placed))),
        )
    # The first leader did not take over from another.
    takeovers = len(workers.said("leader_acquired")) - 1
    console.print("Comparing the topics with the database")
    result = compare(placed, bootstrap_servers)
    at_most = 0 if settings.is_exactly_once else settings.MAX_IN_FLIGHT * takeovers
    rows = _rows(
        result, at_most, takeover=takeover, limit=settings.SESSION_TIMEOUT + MARGIN
    )
    title = f"{settings.DELIVERY}: leader and consumer killed halfway"
    code = print_verdict(console, title, rows)
    return Outcome(code=code, most_duplicates=at_most)


def _rows(
    result: Comparison, at_most: int, *, takeover: float, limit: float
) -> list[Row]:
    return [
        ("orders placed", f"{result.placed:,}", None),
        ("messages committed", f"{result.committed:,}", None),
        ("delivered", f"{result.delivered:,}", result.delivered == result.committed),
        ("lost", f"{result.lost:,}", result.lost == 0),
        ("rolled back, yet delivered", f"{result.phantoms:,}", result.phantoms == 0),
        ("out of order", f"{result.out_of_order:,}", result.out_of_order == 0),
        (
            f"duplicates (at most {at_most:,})",
            f"{result.duplicates:,}",
            result.duplicates <= at_most,
        ),
        (
            "orders that billing has charged once",
            f"{result.charged:,}",
            result.charged == result.placed and result.is_balanced,
        ),
        (
            f"takeover (at most {limit:.0f} s)",
            f"{takeover:.1f} s",
            in_time(takeover, limit),
        ),
    ]


def _watch(line: LiveLine, placed: Orders, seconds: float) -> None:
    """Show the number of placed orders and waiting messages for a while."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        line.show(_count(placed))
        time.sleep(min(0.25, left))


def _count(placed: Orders) -> str:
    from django_outbox.models import OutboxRecord

    return (
        f"{len(placed.placed):,} orders placed,"
        f" {OutboxRecord.objects.count():,} waiting in the outbox"
    )
