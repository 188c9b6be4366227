"""
Runs one harvester as a process: signals, exit codes, metrics, `--drain`.

The same for `manage.py runharvester` and `python -m django_outbox reap`.
"""

from __future__ import annotations

import gc
import logging
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from typing import Final

from ..clock import boottime
from ..clusters import cluster_ids
from ..events import Observer, Stopped
from ..exceptions import ConfigurationError, DatabaseError
from ..message.record import Backlog
from ..observability.presentation import Display, Line, present
from ..postgres.outbox_identity import until_answered
from ..settings.options import OutboxSettings
from ..shutdown import StopSignals, exit_at_once
from ..wording import count, duration
from . import start_checks
from .adapters import HarvestedTable
from .harvester import Harvester
from .monitoring import monitored

logger = logging.getLogger(__name__)

CHECK_INTERVAL: Final = 0.2
"""Seconds between two checks for a signal or, with `--drain`, of the table."""

SIGNAL_CHECK_INTERVAL: Final = 0.05
"""Seconds between two checks for a signal while another thread checks the table."""

CHEAP_COUNT: Final = 20_000
"""Rows that PostgreSQL counts in a millisecond or two."""

SWITCH_INTERVAL: Final = 0.0005
"""Seconds for which a thread keeps the GIL while another one is ready to run."""

GC_THRESHOLD: Final = 100_000
"""New containers between two garbage collections: about 10,000 records."""

CLOSE_GRACE: Final = 1.5
"""Seconds after the drain time-out within which everything must be closed."""


def run(
    make: Callable[[Sequence[Observer], OutboxSettings], Harvester],
    options: OutboxSettings,
    *,
    log_format: str,
    level: int,
    drain: bool = False,
) -> int:
    """
    Run until a signal (or an empty table) ends it; return the exit code.

    The first SIGTERM or SIGINT begins an orderly shutdown, a second one exits at
    once with 143 or 130. Call it on the main thread.

    Args:
        make: builds the harvester from the observers of its events and its settings.
        log_format: `json` or `text`.
        level: of the log, as in `logging`.
        drain: exit when the table is empty.

    Raises:
        ConfigurationError: before this process could lead, or because another outbox
            leads under the same names.
    """
    with StopSignals() as wanted:
        line: Line = "DrainBar" if drain else "StatusLine"
        with present(log_format=log_format, level=level, line=line) as display:
            code = _run(make, options, display, wanted, drain=drain)
        return wanted.leave(code)


def _run(
    make: Callable[[Sequence[Observer], OutboxSettings], Harvester],
    options: OutboxSettings,
    display: Display,
    wanted: StopSignals,
    *,
    drain: bool,
) -> int:
    with ExitStack() as stack:
        observers: list[Observer] = display.observers
        serving = monitored(options, observers)
        if display.is_live:
            # A live line should not be five seconds old.
            options = replace(options, METER_INTERVAL=min(options.METER_INTERVAL, 1.0))
        harvester = make(observers, options)
        table = harvester.make_adapters().table("drain") if drain else None
        stack.enter_context(serving(harvester))
        if options.CLUSTERS_COUNT > 1 and not _wait_until_own(harvester, wanted.stop):
            return _publish_stopped(harvester, observers)
        if not start_checks.wait_until_durable(harvester, wanted.stop):
            return _publish_stopped(harvester, observers)
        if not drain:
            stack.enter_context(start_checks.examined(harvester))
        stack.enter_context(_short_switch_interval())
        stack.enter_context(rare_garbage_collection())
        # The caller reports the error that run() raises.
        harvester.start(logs_refusal=False)
        if table is None:
            while harvester.is_alive and not wanted.stop.wait(CHECK_INTERVAL):
                pass
            harvester.stop()
            return _end(harvester, observers)
        started_at = boottime()
        left = _wait_until_empty(table, harvester, wanted.stop, display.show_backlog)
        elapsed = boottime() - started_at
        harvester.stop()
        code = _end(harvester, observers)
        display.conclude(_summary(harvester.purged, elapsed, left))
        return code


def _end(harvester: Harvester, observers: Sequence[Observer]) -> int:
    timeout = harvester.options.DRAIN_TIMEOUT + CLOSE_GRACE
    try:
        if harvester.join(timeout):
            return 0
    except ConfigurationError:
        raise
    except Exception:
        logger.exception("The harvester failed")
        return 1
    logger.error(
        "Not everything was closed within %.1f s; exiting anyway",
        timeout,
        extra={"action": "stop_overran"},
    )
    _publish_stopped(harvester, observers)
    sys.stdout.flush()
    # Threads that hang in a client library would delay a normal exit.
    return exit_at_once(0)


def _publish_stopped(harvester: Harvester, observers: Sequence[Observer]) -> int:
    for observer in observers:
        observer(Stopped(name=harvester.name))
    return 0


def _wait_until_own(harvester: Harvester, stop: threading.Event) -> bool:
    """
    Wait until the database answers and is this cluster's; False when stopped.

    Checked before this process can lead: with colliding ids, one cluster would
    delete the records of another.

    Raises:
        ConfigurationError: the database is another cluster's, or has no cluster.
    """
    with closing(harvester.make_adapters().table("numbering")) as table:
        answer = until_answered(table.numbering, stop)
    if answer is None:
        return False
    cluster_ids.check(answer[0], harvester.options)
    return True


def _wait_until_empty(
    table: HarvestedTable,
    harvester: Harvester,
    stop: threading.Event,
    show: Callable[[Backlog], None],
) -> Backlog | None:
    """
    Wait until no row is left, also while another process leads; show the progress.

    Returns the backlog of the last check; None: no check succeeded.
    """
    is_over = threading.Event()
    left: Backlog | None = None

    def note(backlog: Backlog) -> None:
        nonlocal left
        left = backlog
        show(backlog)

    # A database that hangs must not delay the reaction to a signal.
    threading.Thread(
        target=_poll_until_empty,
        args=(table, note, is_over),
        name="outbox-drain",
        daemon=True,
    ).start()
    while (
        harvester.is_alive
        and not stop.is_set()
        and not is_over.wait(SIGNAL_CHECK_INTERVAL)
    ):
        pass
    is_over.set()
    return left


def _summary(purged: int, elapsed: float, left: Backlog | None) -> str:
    """Summarize a drain: `60,000 records in 3.8 s`."""
    done = f"{count(purged, 'record')} in {duration(elapsed)}"
    if left is None:
        return f"{done}; the outbox could not be read"
    if not left.records:
        return done
    return f"{done}; {count(left.records, 'record', is_capped=left.is_capped)} left"


def _poll_until_empty(
    table: HarvestedTable, show: Callable[[Backlog], None], is_over: threading.Event
) -> None:
    """Set `is_over` when the table is empty; end when another thread has set it."""
    pause = CHECK_INTERVAL
    while not is_over.wait(pause):
        try:
            backlog = table.backlog()
        except DatabaseError:
            continue
        show(backlog)
        if not backlog.records:
            is_over.set()
        # Counting many rows slows down the harvest.
        pause = CHECK_INTERVAL * min(max(1.0, backlog.records / CHEAP_COUNT), 5.0)
    table.close()


@contextmanager
def _short_switch_interval() -> Iterator[None]:
    """
    Let the GIL change threads ten times as often as by default.

    Neither an answer of the table nor the elector should wait while a dispatcher
    builds messages.
    """
    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)


@contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """
    Run the garbage collector rarely, and only over new objects.

    Each page of records is tens of thousands of small containers without cycles:
    with the default threshold the collector took a third of the process's time.
    Existing objects are frozen, so that the interpreter also exits in a tenth of
    the time.
    """
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
