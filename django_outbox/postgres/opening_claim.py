"""
Opens a transaction with the claim of a key: three statements in one round trip.

Otherwise the driver sends BEGIN, and waits for its answer, before the first
statement. In a transaction as short as a consumer's, that round trip counts.
"""

from __future__ import annotations

from typing import Any, Final

import psycopg
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg import generators
from psycopg.errors import error_from_result
from psycopg.pq import Escaping, ExecStatus, PipelineStatus, TransactionStatus

from ..models import ProcessedMessage

_STATEMENTS: Final = b"""\
BEGIN;%b
-- outbox: once
INSERT INTO %b (consumer, key) VALUES (%b, %b)
ON CONFLICT DO NOTHING"""

_TIMEOUT: Final = b" SET LOCAL idle_in_transaction_session_timeout = %d;"

_COMMAND_OK: Final = int(ExecStatus.COMMAND_OK)
_IDLE: Final = int(TransactionStatus.IDLE)
_NO_PIPELINE: Final = int(PipelineStatus.OFF)
_NO_OPTIONS: Final = (None, None, None)


def open_with_claim(
    connection: BaseDatabaseWrapper, consumer: str, key: str, *, idle_timeout: float
) -> bool | None:
    """
    Begin the transaction of an atomic block and record the key in it.

    Waits for the end of another transaction that claims the same key. After an
    error the transaction is open, and has failed.

    Args:
        idle_timeout: Seconds without a statement after which PostgreSQL ends the
            transaction; 0 = as the server is configured.

    Returns:
        whether the key is new; None: nothing was sent, because the transaction is
        open already, has options, or somebody watches Django's cursors.
    """
    driver = connection.connection
    if not _can_open(connection, driver):
        return None
    pgconn = driver.pgconn
    escaping = Escaping(pgconn)
    statements = _STATEMENTS % (
        _TIMEOUT % round(idle_timeout * 1000) if idle_timeout else b"",
        connection.ops.quote_name(ProcessedMessage._meta.db_table).encode(),
        escaping.escape_literal(consumer.encode()),
        escaping.escape_literal(key.encode()),
    )
    with connection.wrap_database_errors, driver.lock:
        pgconn.send_query(statements)
        results = driver.wait(generators.execute(pgconn))
        for result in results:
            if result.status != _COMMAND_OK:
                raise error_from_result(result)
    return bool(results[-1].command_tuples == 1)


def _can_open(connection: BaseDatabaseWrapper, driver: Any) -> bool:
    """Whether the next statement would make the driver send a plain BEGIN."""
    return (
        isinstance(driver, psycopg.Connection)
        and not driver.autocommit
        and driver.pgconn.transaction_status == _IDLE
        and driver.pgconn.pipeline_status == _NO_PIPELINE
        and driver.pgconn.parameter_status(b"client_encoding") == b"UTF8"
        and (driver.isolation_level, driver.read_only, driver.deferrable) == _NO_OPTIONS
        # These see what passes Django's cursors.
        and not connection.execute_wrappers
        and not connection.queries_logged
    )
