"""
Runs the demo: two acts, and a table of promises after each.

The packages of act 2 are installed while act 1 runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TimeElapsedColumn

from django_outbox.devstack import devstack
from django_outbox.devstack.background_install import BackgroundInstall
from django_outbox.devstack.stack import PRIVATE

from .liveline import LiveLine
from .outbox import show_outbox
from .verdict import Row, print_verdict

PROJECT: Final = Path(__file__).resolve().parents[1]

REPORTS: Final = PROJECT / "reports"
"""Folder for the reports of the audits."""


def show(
    *, seconds: float, rate: float, harvesters: int, delivery: str, has_lake: bool
) -> int:
    """Run the demonstration; return the exit code."""
    console = Console()
    begun = time.monotonic()
    with ExitStack() as running:
        lake = None
        if has_lake:
            lake = running.enter_context(
                BackgroundInstall("demo-lake", archives="spark")
            )
        console.rule("[bold]Act 1: the outbox[/bold]", align="left")
        with console.status("this may take a while"):
            # Private servers, because the demo counts everything in them.
            stack = running.enter_context(
                devstack(sources=PRIVATE, progress=console.print)
            )
            os.environ.update(stack.environment)
            os.environ["OUTBOX_DELIVERY"] = delivery
            # The audit needs the purged records.
            os.environ["OUTBOX_ARCHIVE"] = "1"
            _set_up(console)
        outcome = show_outbox(
            console,
            stack.bootstrap_servers,
            seconds=seconds,
            rate=rate,
            harvesters=harvesters,
            note=_note(lake),
        )
        console.print(f"Act 1 took {time.monotonic() - begun:.0f} s.")
        if lake is None:
            return outcome.code
        begun = time.monotonic()
        console.rule("[bold]Act 2: the lake[/bold]", align="left")
        code = _show_lake(console, lake, max_copies=outcome.most_duplicates)
        console.print(f"Act 2 took {time.monotonic() - begun:.0f} s.")
        return outcome.code or code


def _set_up(console: Console) -> None:
    """Migrate the database and set up Django."""
    console.print("Migrating the database")
    os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
    manage = [sys.executable, str(PROJECT / "manage.py")]
    subprocess.run([*manage, "migrate", "--verbosity", "0"], check=True)

    import django

    django.setup()


def _note(lake: BackgroundInstall | None) -> Callable[[], str]:
    """Return a function with the status of the installation, for act 1."""
    return lambda: f"for act 2: {lake.status}" if lake and lake.is_working else ""


@contextmanager
def _step(console: Console, text: str) -> Iterator[None]:
    """Print a step; on a terminal, show how long it has been running."""
    console.print(text)
    if not console.is_terminal:
        yield
        return
    columns = (SpinnerColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        progress.add_task(text, total=None)
        yield


def _show_lake(console: Console, lake: BackgroundInstall, *, max_copies: int) -> int:
    """Load topics into a lake, audit it and a copy with faults, and lose things."""
    with LiveLine(console) as line:
        lake.wait(shows=lambda: line.show(f"installing: {lake.status}"))
    console.print(f"Spark: {lake.status}")

    from django_outbox.pipeline.audit.verdict import judge
    from django_outbox.pipeline.session import open_session

    from .lake import (
        EXPECTED,
        copied,
        copy_topic,
        expose,
        lake_settings,
        prove,
        wrong,
    )
    from .lake_losses import lose_checkpoints, recreate_topic

    REPORTS.mkdir(exist_ok=True)
    pages = [REPORTS / name for name in ("audit.html", "broken-copy.html")]
    for page in pages:
        page.unlink(missing_ok=True)
    with TemporaryDirectory() as folder:
        settings = lake_settings(Path(folder))
        console.print("Starting Spark")
        # Without a spinner, because Java also writes to the terminal.
        spark = open_session(settings)
        try:
            with _step(console, "Loading the topics into a lake and auditing it"):
                good = prove(spark, settings, pages[0])
            with _step(console, "Auditing a copy with deliberate faults"):
                bad = expose(spark, settings, pages[1])
            with _step(console, "Losing the checkpoints, and reading everything again"):
                reread = lose_checkpoints(spark, settings)
            with _step(console, "Deleting the copied topic, and creating it again"):
                recreated = recreate_topic(
                    spark, copied(settings), lambda: copy_topic(settings)
                )
        finally:
            spark.stop()
    rows: list[Row] = [
        (
            "messages in topics, database and lake",
            f"{good.total('messages'):,}",
            judge(good, max_copies=max_copies).exit_code == 0,
        ),
        (
            "deliberate faults found in a copy",
            ", ".join(f"{count} {name}" for name, count in wrong(bad).items()),
            wrong(bad) == EXPECTED,
        ),
        ("lost checkpoints: nothing twice", *reread),
        ("a topic created again: all read", *recreated),
    ]
    code = print_verdict(console, "The lake has every message", rows)
    for page in pages:
        console.print(f"Report: {page}", soft_wrap=True)
    return code
