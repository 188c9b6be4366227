"""
One connection to PostgreSQL for one thread, replaced after an error.

Every wait has a time-out: for a connection, a statement, a lock, an answer. `Limits`
derives them from one deadline.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import psycopg
from django.core.exceptions import ImproperlyConfigured
from psycopg.abc import RV, PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow
from psycopg.waiting import Ready

from ..clock import boottime
from ..exceptions import ConfigurationError, DatabaseBusy, DatabaseSlow
from .deadlines import call_apart, wait_for
from .errors import translated
from .statements import queries

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper


class Connection(psycopg.Connection[TupleRow]):
    """A connection on which no answer is awaited without end."""

    answer_timeout = math.inf
    """Seconds without a byte after which the connection is closed: the time-outs of
    the server and of TCP do not cover a pooler whose server does not answer."""
    role: str | None = None
    """The role to assume; None: that of the login."""

    def wait(self, gen: PQGen[RV], *arguments: Any, **options: Any) -> RV:
        socket = self.pgconn.socket
        try:
            wanted = next(gen)
            while ready := wait_for(socket, wanted, timeout=self.answer_timeout):
                wanted = gen.send(Ready(ready))
        except StopIteration as end:
            result: RV = end.value
            return result
        except KeyboardInterrupt:
            # The next statement would receive the answer to this one.
            self.close()
            raise
        # A rollback, for instance, would not be answered either.
        self.close()
        raise psycopg.OperationalError(f"no answer for {self.answer_timeout:.1f} s")


NEVER_PREPARE_BY_COUNT: Final = sys.maxsize
"""Uses of a statement before the driver prepares it: only those that ask for it are."""

_ROLE: Final = "assume_role"
"""Django's option: the role to assume once connected."""

_NOT_LIBPQ: Final = frozenset(
    {
        *("autocommit", "context", "cursor_factory", "prepare_threshold"),
        *("row_factory", _ROLE),
    }
)
"""Keys of Django's `get_connection_params()` and options that are not for libpq."""

Params: TypeAlias = Mapping[str, Any] | Callable[[], Mapping[str, Any]]
"""How to connect; a function is called each time, since a password may be a token."""

_inherited: Final[list[Connection]] = []
"""A parent process's connections: never used, closed or collected in a child."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """
    How long a thread may wait for the database. Durations are seconds.

    A call ends within the sum of `statement` and `peer`, which leaves a sixth of the
    deadline for another connection.
    """

    reach: float = 10.0
    """To connect to any of the servers, including the look-up of their names."""
    connect: float = 3.0
    """To connect to one server; libpq takes whole seconds, at least two."""
    statement: float = 5.0
    """For one statement."""
    lock: float = 2.0
    """For one lock, within the statement: a migration that needs a stronger lock on the
    table waits for this statement, and all writers wait for the migration."""
    peer: float = 10 / 3
    """After so long without an acknowledgement, the server counts as lost."""

    @classmethod
    def within(cls, deadline: float) -> Limits:
        """Derive all limits from the time after which the database counts as lost."""
        return cls(
            reach=deadline,
            connect=0.3 * deadline,
            statement=deadline / 2,
            lock=min(deadline / 5, 2.0),
            peer=deadline / 3,
        )


class Database:
    """
    Connects when it is first used, and again after any error.

    Behind a pooler that shares server processes (pgbouncer in transaction
    mode) a session setting would reach other clients, and start-up options are
    refused. So a statement sets up the session: once on a direct connection,
    else in the transaction of each statement.

    Args:
        params: libpq's keywords, as in Django's `get_connection_params()`;
            `conninfo` may hold some of them as one string, `assume_role` the
            role to assume. Those of a function are checked when it connects.
        application_name: shown in `pg_stat_activity`.
        is_durable: whether a commit waits for the disk. Changes that a crash of
            the server may lose without harm need not.

    Raises:
        ConfigurationError: libpq does not accept the parameters.
    """

    def __init__(
        self,
        params: Params,
        *,
        application_name: str = "django-outbox",
        limits: Limits | None = None,
        is_durable: bool = True,
    ) -> None:
        limits = limits or Limits()
        self._given = params if callable(params) else lambda: params
        if not callable(params):
            _libpq(params)
        self._defaults: Mapping[str, Any] = {
            "client_encoding": "UTF8",
            "connect_timeout": max(2, math.ceil(limits.connect)),
            "keepalives": 1,
            "keepalives_idle": max(1, round(limits.peer / 2)),
            "keepalives_interval": 1,
            "keepalives_count": max(2, round(limits.peer / 2)),
            "tcp_user_timeout": round(limits.peer * 1000),
        }
        self._application_name = application_name
        self._limits = {
            "statement_timeout": f"{round(limits.statement * 1000)}ms",
            "lock_timeout": f"{round(limits.lock * 1000)}ms",
            # None: as the server or the role has it.
            "synchronous_commit": None if is_durable else "off",
        }
        self._reach = limits.reach
        self._answer_timeout = limits.statement + limits.peer
        self._connection: Connection | None = None
        self._pid = 0
        self.is_pooled = False
        """Whether a pooler may change the server behind this connection."""

    @contextmanager
    def session(self) -> Iterator[Connection]:
        """
        Lend the connection for one statement, which commits on its own.

        Raises:
            DatabaseUnavailable: the outcome is unknown; the next session
                makes a new connection.
            DatabaseBusy: another session holds a lock; nothing was done.
            DatabaseError: a retry does not help; its text says what does.
            ConfigurationError: libpq does not accept the parameters.
        """
        began = boottime()
        try:
            connection = self._connected()
            if self.is_pooled:
                with connection.transaction():
                    self._limit(connection, is_local=True)
                    yield connection
            else:
                yield connection
        except psycopg.Error as error:
            ours = translated(error)
            ours.waited = boottime() - began
            # Details of these errors quote the row.
            is_telling = isinstance(error, psycopg.DataError | psycopg.IntegrityError)
            is_of_a_row = is_telling or isinstance(error, psycopg.errors.RaiseException)
            # After those the session is as it was.
            if not (is_of_a_row or isinstance(ours, DatabaseBusy | DatabaseSlow)):
                self.close()
            raise ours from (None if is_telling else error)

    def close(self) -> None:
        """Close the connection; safe to call twice."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if self._pid == os.getpid():
            connection.close()
        else:
            _inherited.append(connection)

    def _connected(self) -> Connection:
        if self._connection is None or self._pid != os.getpid():
            self.close()
            connection = self._connect()
            try:
                self._prepare(connection)
            except BaseException:
                connection.close()
                raise
            self._connection, self._pid = connection, os.getpid()
        return self._connection

    def _connect(self) -> Connection:
        # The look-up of a host name blocks the thread, and has no time-out.
        try:
            return call_apart(
                self._connect_now, discard=Connection.close, timeout=self._reach
            )
        except TimeoutError as error:
            raise psycopg.OperationalError(
                f"no connection after {self._reach:.1f} s"
            ) from error

    def _connect_now(self) -> Connection:
        try:
            given = self._given()
        except ConfigurationError:
            raise
        except Exception as error:
            # The function may ask a service for a token, which may be unavailable.
            raise psycopg.OperationalError(
                "the connection parameters are not available: "
                f"{type(error).__name__}: {error}"
            ) from error
        params = {
            **self._defaults,
            **_libpq(given),
            "application_name": self._application_name,
        }
        connection = Connection.connect(
            **params, autocommit=True, prepare_threshold=None
        )
        connection.role = given.get(_ROLE)
        return connection

    def _prepare(self, connection: Connection) -> None:
        connection.answer_timeout = self._answer_timeout
        row = connection.execute(queries()["backend"]).fetchone()
        self.is_pooled = row != (connection.info.backend_pid,)
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        if not self.is_pooled:
            self._limit(connection, is_local=False)
            connection.prepare_threshold = NEVER_PREPARE_BY_COUNT

    def _limit(self, connection: Connection, *, is_local: bool) -> None:
        values = {**self._limits, "role": connection.role, "is_local": is_local}
        try:
            connection.execute(queries()["session"], values)
        except psycopg.DataError as error:
            # A role that does not exist may have been dropped, and may come back.
            raise psycopg.OperationalError(str(error)) from error


def params_of(connection: BaseDatabaseWrapper) -> Params:
    """Return how a Django connection connects, looked up at each call."""

    def params() -> Mapping[str, Any]:
        role = connection.settings_dict["OPTIONS"].get(_ROLE)
        try:
            return {**connection.get_connection_params(), _ROLE: role}
        except ImproperlyConfigured as error:
            raise ConfigurationError(str(error)) from error

    return params


def _libpq(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Check the connection's parameters, and merge those of a `conninfo` string."""
    given = {k: v for k, v in params.items() if k not in _NOT_LIBPQ}
    try:
        return conninfo_to_dict(make_conninfo(given.pop("conninfo", ""), **given))
    except psycopg.ProgrammingError:
        # The driver's text may quote a part of the password.
        message = f"libpq does not accept these parameters: {', '.join(params)}."
        raise ConfigurationError(message) from None
