"""
One connection to Postgres for one thread or fiber, replaced after it broke.

`outbox.py` opens a session for each statement. Every wait has a limit, in a
fiber and in a thread alike: for a connection, a statement, a lock, an answer.
`Limits` derives them from one deadline. `errors.py` makes the driver's errors ours.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import psycopg
from psycopg.abc import RV, PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow
from psycopg.waiting import Ready

from ..clock import boottime
from ..exceptions import ConfigurationError, DatabaseBusy
from ..relay import fibers
from .errors import translated
from .statements import queries


class Connection(psycopg.Connection[TupleRow]):
    """Where a fiber uses it, that fiber waits and not its thread."""

    answer_timeout = math.inf
    """Seconds without a byte, after which the connection is of no further use: neither
    the server's limits nor TCP's help against a pooler whose server is silent."""

    def wait(self, gen: PQGen[RV], *arguments: Any, **options: Any) -> RV:
        socket = self.pgconn.socket
        try:
            wanted = next(gen)
            while ready := self._wait_for(socket, wanted):
                wanted = gen.send(Ready(ready))
        except StopIteration as end:
            result: RV = end.value
            return result
        except KeyboardInterrupt:
            # The answer to what was asked would be taken for that of the next.
            self.close()
            raise
        # Nothing that is asked now, a rollback say, would be answered either.
        self.close()
        raise psycopg.OperationalError(f"no answer for {self.answer_timeout:.1f} s")

    def _wait_for(self, socket: int, events: int) -> int:
        """Wait until a socket is ready; return for what, 0: it was not in time."""
        fiber = fibers.here()
        if fiber is None:
            return fibers.poll(socket, events, timeout=self.answer_timeout)
        ready = fiber.wait_for(socket, events, until=boottime() + self.answer_timeout)
        # After a pause of the process the time is over, and the answer is there.
        return ready or fibers.poll(socket, events, timeout=0.0)


NEVER_PREPARE_BY_COUNT: Final = sys.maxsize
"""How often a statement is used before the server keeps it, but for those that ask."""

_ROLE: Final = "assume_role"
"""Django's option: the role to act as, once connected."""

_NOT_LIBPQ: Final = frozenset(
    {
        *("autocommit", "context", "cursor_factory", "prepare_threshold"),
        *("row_factory", _ROLE),
    }
)
"""What Django's `get_connection_params()` and options hold for others than libpq."""

Params: TypeAlias = Mapping[str, Any] | Callable[[], Mapping[str, Any]]
"""How to connect; a function is asked each time, since a password may be a token."""

_inherited: Final[list[Connection]] = []
"""A parent process's connections: never used, closed or collected in a child."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """
    How long the database may keep a thread waiting. Durations are seconds.

    A call ends within `statement` and `peer`, which leaves a sixth of the
    deadline for another connection.
    """

    reach: float = 10.0
    """To connect to any of the servers, with the look-up of their names."""
    connect: float = 3.0
    """To connect to one server; libpq counts whole seconds, and at least two."""
    statement: float = 5.0
    """For one statement."""
    lock: float = 2.0
    """For one lock, within the statement: a migration that needs a stronger lock on the
    table waits behind us, and all writers wait behind the migration."""
    peer: float = 10 / 3
    """A server that acknowledges nothing for so long is gone."""

    @classmethod
    def within(cls, deadline: float) -> Limits:
        """Derive all limits from the time after which the database counts as away."""
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
    refused. So the session is set up by a statement: once when the server is
    spoken to directly, else in each statement's own transaction.

    Args:
        params: libpq's keywords, as in Django's `get_connection_params()`;
            `conninfo` may hold some of them as one string, `assume_role` the
            role to act as.
        application_name: shown in `pg_stat_activity`.
        is_durable: whether a commit waits for the disk. What a crash of the
            server may take back without harm needs no wait.
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
        given = self._given()
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
        _libpq(given)
        self._limits = {
            "statement_timeout": f"{round(limits.statement * 1000)}ms",
            "lock_timeout": f"{round(limits.lock * 1000)}ms",
            # None: as the server or the role has it.
            "synchronous_commit": None if is_durable else "off",
            "role": given.get(_ROLE),
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
        Lend the connection for one statement, which commits by itself.

        Raises:
            DatabaseUnavailable: the outcome is unknown; the next session
                makes a new connection.
            DatabaseBusy: another session holds a lock; nothing was done.
            DatabaseError: no retry helps; its text says what does.
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
            if not isinstance(ours, DatabaseBusy):
                self.close()
            # Their details quote the row.
            is_telling = isinstance(error, psycopg.DataError | psycopg.IntegrityError)
            raise ours from (None if is_telling else error)

    def ping(self) -> None:
        """Ask the server for nothing, to learn whether it answers."""
        with self.session() as connection:
            connection.execute(queries()["backend"])

    def close(self) -> None:
        """Drop the connection; safe to call twice."""
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
            self._connection = self._connect()
            self._pid = os.getpid()
            self._prepare(self._connection)
        return self._connection

    def _connect(self) -> Connection:
        # To look a host's name up blocks the thread, and has no limit of its own.
        try:
            return fibers.call(
                self._connect_now, discard=Connection.close, timeout=self._reach
            )
        except TimeoutError as error:
            raise psycopg.OperationalError(
                f"no connection after {self._reach:.1f} s"
            ) from error

    def _connect_now(self) -> Connection:
        try:
            given = _libpq(self._given())
        except Exception as error:
            # Whoever makes tokens may be away, too.
            raise psycopg.OperationalError(
                f"it is not known how to connect: {type(error).__name__}: {error}"
            ) from error
        params = {**self._defaults, **given, "application_name": self._application_name}
        return Connection.connect(**params, autocommit=True, prepare_threshold=None)

    def _prepare(self, connection: Connection) -> None:
        connection.answer_timeout = self._answer_timeout
        row = connection.execute(queries()["backend"]).fetchone()
        self.is_pooled = row != (connection.info.backend_pid,)
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        if not self.is_pooled:
            self._limit(connection, is_local=False)
            connection.prepare_threshold = NEVER_PREPARE_BY_COUNT

    def _limit(self, connection: Connection, *, is_local: bool) -> None:
        connection.execute(queries()["session"], {**self._limits, "is_local": is_local})


def _libpq(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Check the connection's parameters, and merge those of a `conninfo` string."""
    given = {k: v for k, v in params.items() if k not in _NOT_LIBPQ}
    try:
        return conninfo_to_dict(make_conninfo(given.pop("conninfo", ""), **given))
    except psycopg.ProgrammingError:
        # Its text may quote a part of the password.
        message = f"libpq does not accept these parameters: {', '.join(params)}."
        raise ConfigurationError(message) from None
