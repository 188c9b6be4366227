"""A standby of the embedded PostgreSQL that lags behind, and the failover to it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from django_outbox.devstack.embedded_postgres import EmbeddedPostgres
from django_outbox.devstack.service import Service

from ..waiting import eventually


class LaggingStandby:
    """
    What a primary was at one moment: `pg_basebackup`, and nothing after it.

    An asynchronous standby that the primary's last seconds have not reached
    looks the same when it is promoted.
    """

    def __init__(self, primary: Service) -> None:
        assert isinstance(primary, EmbeddedPostgres), "needs a server of its own"
        self._primary = primary
        folder = primary._process.folder
        self._data, self._copy = folder / "data", folder / "standby"
        owner = self._data.stat()
        # The server is not run by root, nor is what it is copied with.
        is_root = os.geteuid() == 0
        subprocess.run(
            [
                str(primary._programs / "pg_basebackup"),
                *("--dbname", primary.address, "--pgdata", str(self._copy)),
                *("--wal-method=stream", "--checkpoint=fast", "--no-sync"),
            ],
            user=owner.st_uid if is_root else None,
            group=owner.st_gid if is_root else None,
            extra_groups=[] if is_root else None,
            check=True,
            timeout=60,
        )

    def take_over(self) -> None:
        """Let the primary crash, and promote the standby at its address."""
        self._primary.kill()
        self._data.rename(self._data.with_name("crashed"))
        self._copy.rename(self._data)
        (self._data / "standby.signal").touch()
        self._primary.start()
        with self._connection() as connection:
            connection.execute("SELECT pg_promote()")
        eventually(self._is_primary, what="the promotion")

    def _is_primary(self) -> bool:
        with self._connection() as connection:
            row = connection.execute("SELECT NOT pg_is_in_recovery()").fetchone()
        return bool(row and row[0])

    @contextmanager
    def _connection(self) -> Iterator[psycopg.Connection]:
        with psycopg.connect(self._primary.address, autocommit=True) as connection:
            yield connection
