"""
The lifecycle of a harvester, in any process.

    with Harvester():
        ...

A harvester may be the whole work of a process or run beside an application's own
work. Django's settings are read here: the parts that it is made of get values.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from types import TracebackType

from .. import signals
from ..conf import settings
from ..election.elector import NOT_IN_GROUP
from ..events import Event, Observer
from ..observability.message_times import MessageTimes
from ..postgres.connection import params_of
from ..postgres.outbox_identity import KnownOutbox, until_answered
from ..relay.meter import Counters
from ..settings.options import OutboxSettings
from .adapters import Adapters
from .components import Budget, Components
from .notifier import Notifier
from .threads import HarvesterThreads
from .wiring import assemble

logger = logging.getLogger(__name__)


def default_name() -> str:
    """Name a process by its host and pid."""
    return f"{socket.gethostname()}-{os.getpid()}"


class Harvester:
    """
    One process of those that harvest an outbox: it leads, or stands by.

    `start()` creates the threads in the process that calls it; the threads create
    the clients as soon as the database has told which outbox this is. So an
    instance may be created before a fork; after a fork the child's copy is not
    running, even if the parent's is.

    Args:
        name: names this process in logs and events; host-pid by default.
        database: alias of the database to harvest; by default the setting
            DATABASE, else where the routers write outbox records.
        solo: lead without an election, for development.
        observers: called with each event on the thread where it happens;
            they must return at once.
        options: settings to use instead of the Django project's.
        adapters: collaborators to use instead of PostgreSQL and Kafka.
        send: delivers an event to the application's receivers and returns how many
            of them raised; by default through Django's signals.
    """

    def __init__(
        self,
        *,
        name: str | None = None,
        database: str | None = None,
        solo: bool = False,
        observers: Sequence[Observer] = (),
        options: OutboxSettings | None = None,
        adapters: Adapters | None = None,
        send: Callable[[Event], int] | None = None,
    ) -> None:
        self.name = name or default_name()
        self.options = options or settings.snapshot()
        self._database = database
        self._solo = solo
        self._observers = observers
        self._adapters = adapters
        self._send = send or partial(signals.send, sender=type(self))
        self._threads: HarvesterThreads | None = None
        self._pid = os.getpid()
        self._purged = 0

    def start(self, *, logs_refusal: bool = True) -> None:
        """
        Start the threads and return; they retry services that are unavailable.

        Args:
            logs_refusal: log a `ConfigurationError` that ends the harvester;
                `join()` raises it in any case.

        Raises:
            RuntimeError: it is already running in this process.
            ConfigurationError: a setting is wrong.
        """
        if self._running() is not None:
            raise RuntimeError(f"The harvester {self.name} is already running.")
        self._pid = os.getpid()
        adapters = self.make_adapters()
        threads = self._threads = HarvesterThreads(
            name=self.name,
            notifier=Notifier(self._send),
            observers=self._observers,
            budget=Budget(
                drain=self.options.DRAIN_TIMEOUT, revoke=self.options.REVOKE_TIMEOUT
            ),
            logs_refusal=logs_refusal,
        )
        threads.start(lambda stop: self._assemble(adapters, threads, stop))

    def stop(self) -> None:
        """
        Begin an orderly shutdown: drain, purge, leave the group.

        Returns at once; `join()` waits. Safe when never started or called twice.
        """
        if threads := self._running():
            threads.stop()

    def join(self, timeout: float | None = None) -> bool:
        """
        Wait until it has ended; False when it has not after `timeout` seconds.

        Raises:
            BaseException: the error that ended one of its threads early.
        """
        threads = self._running()
        if threads is None:
            return True
        if not threads.join(timeout):
            return False
        self._threads = None
        self._purged = threads.purged
        if threads.failure is not None:
            raise threads.failure
        return True

    @property
    def is_alive(self) -> bool:
        """Whether it runs in this process and all of its threads work."""
        threads = self._running()
        return threads is not None and threads.is_alive

    @property
    def purged(self) -> int:
        """Records sent and purged by the current or last run in this process."""
        threads = self._running()
        return self._purged if threads is None else threads.purged

    @property
    def counters(self) -> Counters | None:
        """What its relays count; None: it does not run in this process."""
        threads = self._running()
        return None if threads is None else threads.counters

    @property
    def times(self) -> MessageTimes | None:
        """
        From the creation of rows to Kafka's acknowledgement.

        None: it does not run, or does not know yet which outbox it has.
        """
        threads = self._running()
        return None if threads is None else threads.times

    @property
    def group_fault(self) -> str:
        """Why this process can neither lead nor stand by; empty: it can."""
        threads = self._running()
        return NOT_IN_GROUP if threads is None else threads.group_fault

    @property
    def receiver_errors(self) -> int:
        """Signal receivers that raised or overran in the current run."""
        threads = self._running()
        return 0 if threads is None else threads.receiver_errors

    @property
    def has_failed(self) -> bool:
        """Whether one of its threads has ended with an error."""
        threads = self._running()
        return threads is not None and threads.failure is not None

    def __enter__(self) -> Harvester:
        self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        self.join()

    def make_adapters(self) -> Adapters:
        """Return the given adapters, else those of PostgreSQL and Kafka."""
        return self._adapters or _from_django(
            self.options, database=self._database, name=self.name, solo=self._solo
        )

    def _running(self) -> HarvesterThreads | None:
        # Threads do not survive a fork: a child does not run the parent's.
        return self._threads if self._pid == os.getpid() else None

    def _assemble(
        self, adapters: Adapters, threads: HarvesterThreads, stop: threading.Event
    ) -> Components | None:
        """
        Build the components of one run once the database has told the identity.

        None: stopped before the database answered. The components call `threads`.

        Raises:
            ConfigurationError: there are no names for the election, and no identity
                to derive them from.
        """
        learn = adapters.learn or KnownOutbox(self.options, table="outbox").learn
        with closing(adapters.table("identity")) as table:
            answer = until_answered(table.identity, stop)
        if answer is None:
            return None
        (identity,) = answer
        return assemble(
            learn(identity), adapters=adapters, threads=threads, learn=learn
        )


def _from_django(
    options: OutboxSettings, *, database: str | None, name: str, solo: bool
) -> Adapters:
    """Return the adapters that the Django project's settings describe."""
    # The models cannot be imported before Django's app registry is ready.
    from ..models import OutboxRecord
    from ..models.routing import outbox_database, require_postgresql

    alias = outbox_database(database or options.DATABASE)
    real = Adapters.real(
        options,
        params_of(require_postgresql(alias)),
        name=name,
        table=OutboxRecord._meta.db_table,
        solo=solo,
    )
    return replace(real, database=alias)
