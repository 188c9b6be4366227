"""Transactions that are open at the same time, each on a thread of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from django.db import connection, connections, transaction

from tests.waiting import eventually

P = ParamSpec("P")
R = TypeVar("R")

PATIENCE = 15.0


class Transaction:
    """A transaction that does what it is told, and may have to wait for others."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._block = transaction.atomic()
        self._pool.submit(self._block.__enter__).result(PATIENCE)

    def submit(
        self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs
    ) -> Future[R]:
        return self._pool.submit(call, *args, **kwargs)

    def do(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        return self.submit(call, *args, **kwargs).result(PATIENCE)

    def commit(self) -> None:
        self._pool.submit(self._block.__exit__, None, None, None).result(PATIENCE)

    def roll_back(self) -> None:
        error = ZeroDivisionError()
        self._pool.submit(
            self._block.__exit__, type(error), error, error.__traceback__
        ).result(PATIENCE)


@contextmanager
def begun() -> Iterator[Transaction]:
    """A transaction that has begun; the test ends it."""
    with ThreadPoolExecutor(1) as pool:
        try:
            yield Transaction(pool)
        finally:
            pool.submit(connections.close_all).result(PATIENCE)


def wait_until_blocked(sessions: int = 1) -> None:
    """Return when so many sessions wait for a lock."""
    eventually(lambda: _blocked() >= sessions, what="a session that is blocked")


def _blocked() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted")
        return int(cursor.fetchone()[0])
