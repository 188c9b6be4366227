"""A disk that has room for little, with the outbox's rows on it; only for root."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import psycopg

from ...waiting import eventually
from ..tables import OutboxTable

MOUNT: Final = shutil.which("mount") or "mount"
UMOUNT: Final = shutil.which("umount") or "umount"

SIZE: Final = "64m"

PROBE: Final = """
INSERT INTO {outbox} (create_time, kafka_topic, kafka_key, kafka_value)
SELECT now(), 'probe', '', repeat('x', 1000 + 0 / (1000 - number))
FROM generate_series(1, 1000) AS number
"""
"""Rows that fit into no page that is there already; the last one is an error."""


class SmallDisk:
    """Holds the rows of a table."""

    def __init__(self, folder: Path, table: OutboxTable) -> None:
        self._filler = folder / "filler"
        self._table = table

    def fill(self) -> None:
        """Leave no room; returns when an INSERT has failed."""
        try:
            with self._filler.open("wb", buffering=0) as file:
                while file.write(bytes(1 << 16)):
                    pass
        except OSError:  # no space left
            pass
        eventually(self._is_full, what="a full disk")

    def free(self) -> None:
        """Make room again."""
        self._filler.unlink()

    def _is_full(self) -> bool:
        try:
            # One statement: its rows are gone when the division fails.
            self._table.execute(PROBE)
        except psycopg.errors.DiskFull:
            return True
        except psycopg.errors.DivisionByZero:
            return False
        raise AssertionError("the probe was committed")


@contextmanager
def small_disk(table: OutboxTable) -> Iterator[SmallDisk]:
    """Move a table's rows to a small disk, and back when the block ends."""
    name = f"small_{table.database}"
    with TemporaryDirectory() as folder, _mounted(Path(folder)) as disk:
        space = disk / "space"
        space.mkdir(mode=0o700)
        # As root, the server runs as this user.
        shutil.chown(space, "nobody")
        table.execute(f"CREATE TABLESPACE {name} LOCATION '{space}'")
        table.execute(f"ALTER TABLE {{outbox}} SET TABLESPACE {name}")
        try:
            yield SmallDisk(disk, table)
        finally:
            table.execute("ALTER TABLE {outbox} SET TABLESPACE pg_default")
            table.execute(f"DROP TABLESPACE {name}")


@contextmanager
def _mounted(folder: Path) -> Iterator[Path]:
    folder.chmod(0o755)
    disk = folder / "disk"
    disk.mkdir()
    mount = [MOUNT, "-t", "tmpfs", "-o", f"size={SIZE},mode=755", "tmpfs", str(disk)]
    subprocess.run(mount, check=True)
    try:
        yield disk
    finally:
        # The server may still hold files that are gone.
        subprocess.run([UMOUNT, "--lazy", str(disk)], check=True)
