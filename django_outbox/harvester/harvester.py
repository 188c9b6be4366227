"""
The composition root and the lifecycle of a harvester, in any process.

    with Harvester():
        ...

`runharvester` and `standalone/reaper.py` start one and wait; an application may start
one beside its own work. Everything below this module gets its values from
here and knows neither Django's settings nor the other parts' classes.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any

from .. import signals
from ..conf import OutboxImproperlyConfigured, settings
from ..events import Event, Observer
from ..postgres.outbox_identity import KnownOutbox, until_answered
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
    A process's part in harvesting one outbox: it may lead, or stand by.

    Threads are made by `start()`, in the process that calls it, and clients by the
    threads as soon as the database has said which outbox this is. So an instance may
    be made before a fork; after a fork the child's copy is not running, whatever the
    parent's does.

    Args:
        name: names this process in logs and events; host-pid by default.
        database: alias of the database to harvest; by default the setting
            DATABASE, else where the routers write outbox records.
        solo: lead without an election, for development.
        observers: called with each event on the thread where it happens;
            they must return at once.
        options: settings to use instead of the Django project's.
        providers: collaborators to use instead of PostgreSQL and Kafka.
        send: tells the application of an event and returns how many receivers
            raised; Django's signals by default.
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
        Start the threads and return; they go on trying whatever is away.

        Args:
            logs_refusal: log a `ConfigurationError` that ends it; `join()` raises it
                in any case.

        Raises:
            RuntimeError: when it runs already in this process.
            ConfigurationError: a setting is wrong, whatever the database says.
        """
        if self._running() is not None:
            raise RuntimeError(f"The harvester {self.name} runs already.")
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
        Begin an orderly end: drain, purge, leave the group.

        Returns at once; `join()` waits. Safe when never started or called twice.
        """
        if threads := self._running():
            threads.stop()

    def join(self, timeout: float | None = None) -> bool:
        """
        Wait until it has ended; False when it has not after `timeout` seconds.

        Raises:
            BaseException: what ended one of its threads before its time.
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
        """Whether it runs in this process and every thread does its work."""
        threads = self._running()
        return threads is not None and threads.is_alive

    @property
    def purged(self) -> int:
        """Records that the present or last run in this process has sent and purged."""
        threads = self._running()
        return self._purged if threads is None else threads.purged

    @property
    def has_failed(self) -> bool:
        """Whether a thread of it has ended by an error."""
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
        """Return the providers in use: the given ones, else PostgreSQL and Kafka."""
        return self._adapters or _from_django(
            self.options, database=self._database, name=self.name, solo=self._solo
        )

    def _running(self) -> HarvesterThreads | None:
        # Threads do not survive a fork: in a child, the parent's run is not ours.
        return self._threads if self._pid == os.getpid() else None

    def _assemble(
        self, adapters: Adapters, threads: HarvesterThreads, stop: threading.Event
    ) -> Components | None:
        """
        Build all parts of one run as soon as the database has said which outbox it is.

        None: stopped before it did. The parts call the machinery back.

        Raises:
            ConfigurationError: there is nothing to make the election's names of.
        """
        learn = adapters.learn or KnownOutbox(self.options, table="outbox").learn
        with closing(adapters.table("identity")) as table:
            answer = until_answered(table.identity, stop)
        if answer is None:
            return None
        (identity,) = answer
        return assemble(
            learn(identity),
            adapters=replace(adapters, learn=learn),
            threads=threads,
            name=self.name,
        )


def _from_django(
    options: OutboxSettings, *, database: str | None, name: str, solo: bool
) -> Adapters:
    """Provide what the Django project's settings describe."""
    from django.db import connections
    from django.utils.connection import ConnectionDoesNotExist

    # The models cannot be imported before Django's app registry is ready.
    from ..models import OutboxRecord
    from ..models.routing import outbox_database

    alias = outbox_database(database or options.DATABASE)
    try:
        connection = connections[alias]
    except ConnectionDoesNotExist as error:
        raise OutboxImproperlyConfigured(
            f"DATABASE: there is no database {alias!r}; choose one of "
            f"{', '.join(sorted(connections))}."
        ) from error
    if connection.vendor != "postgresql":
        raise OutboxImproperlyConfigured(
            f"DATABASE: {alias!r} is {connection.display_name}; the outbox needs "
            "PostgreSQL."
        )

    def conninfo() -> Mapping[str, Any]:
        role = connection.settings_dict["OPTIONS"].get("assume_role")
        return {**connection.get_connection_params(), "assume_role": role}

    real = Adapters.real(
        options, conninfo, name=name, table=OutboxRecord._meta.db_table, solo=solo
    )
    return replace(real, database=alias)
