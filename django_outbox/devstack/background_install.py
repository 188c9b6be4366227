"""
Installs an extra in the background, while a script already runs without it.

It only adds packages to the environment, because processes run from it. The
installation ends with this process; the next one removes half-installed
packages and installs them again.
"""

from __future__ import annotations

import importlib
import signal
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final

from . import bootstrap
from .archives import download
from .service import DevstackError
from .supervised_process import SupervisedProcess

NICE: Final = ("nice", "-n", "15")
"""Runs the installation with low priority, so that the script is not slowed down."""


class BackgroundInstall:
    """
    Installs an extra and a list of Java archives; the end of the block cancels it.

    Args:
        extra: Name of an extra in `pyproject.toml`.
        archives: Name of a list of Java archives.
    """

    def __init__(self, extra: str, *, archives: str) -> None:
        self._extra = extra
        self._archives = archives
        self._error: DevstackError | None = None
        self._started = time.monotonic()
        self._took = 0.0
        self._line = "waiting to begin"
        self._process = SupervisedProcess("install", ending=signal.SIGKILL)
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> BackgroundInstall:
        self._thread.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.close()

    @property
    def status(self) -> str:
        """Current step or result, as one line for people."""
        if self.is_working:
            return self._line
        return "failed" if self._error else f"installed ({self._took:.0f} s)"

    @property
    def is_working(self) -> bool:
        """Whether the installation is still running."""
        return self._thread.is_alive()

    def wait(self, *, shows: Callable[[], None] = lambda: None) -> None:
        """
        Wait until everything is installed.

        Args:
            shows: Called several times a second.

        Raises:
            DevstackError: the installation failed or made no progress.
        """
        while self.is_working:
            shows()
            self._thread.join(0.2)
        if self._error:
            raise self._error
        # Python caches which folders do not have a package.
        importlib.invalidate_caches()

    def _work(self) -> None:
        try:
            if not bootstrap.is_complete(self._extra):
                with bootstrap.install_lock(say=self._update_status):
                    self._install()
            download(
                self._archives,
                self._process,
                progress=self._update_status,
                prefix=NICE,
            )
        except DevstackError as error:
            self._error = error
        except Exception as error:  # noqa: BLE001 - `wait` raises it in its thread
            self._error = DevstackError(f"The installation failed: {error!r}")
        self._took = time.monotonic() - self._started

    def _install(self) -> None:
        if bootstrap.is_complete(self._extra):
            return
        with bootstrap.adding(self._extra) as command:
            self._process.run(
                [*NICE, *command], name="pip", progress=self._update_status
            )

    def _update_status(self, line: str) -> None:
        """Keep a line of pip or of the download as the status, shortened."""
        if text := line.strip().partition(" (from")[0]:
            self._line = text[:60]
