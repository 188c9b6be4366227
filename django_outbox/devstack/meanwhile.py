"""
Install what a script needs later, while it does what it can do already.

Adds to the environment that `bootstrap.py` has made, and changes nothing of
what is there: processes run from it. Whatever ends this process also ends the
installation; the next one removes what is half there and installs it again.
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
from .kept import KeptProcess
from .service import DevstackError

NICE: Final = ("nice", "-n", "15")
"""What the script does now goes first."""


class Meanwhile:
    """
    Installs an extra and a list of Java archives until the block ends.

    Args:
        extra: of `pyproject.toml`.
        archives: name of a list in `jars/`.
    """

    def __init__(self, extra: str, *, archives: str) -> None:
        self._extra = extra
        self._archives = archives
        self._error: DevstackError | None = None
        self._begun = time.monotonic()
        self._took = 0.0
        self._line = "waiting to begin"
        self._process = KeptProcess("install", ending=signal.SIGKILL)
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Meanwhile:
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
        """What it does now, or that it has finished; one line for people."""
        if self.is_working:
            return self._line
        return "failed" if self._error else f"installed ({self._took:.0f} s)"

    @property
    def is_working(self) -> bool:
        """Whether it has not finished."""
        return self._thread.is_alive()

    def wait(self, *, shows: Callable[[], None] = lambda: None) -> None:
        """
        Return when all is installed; that it stalls, it notices itself.

        Args:
            shows: is called several times a second.

        Raises:
            DevstackError: it failed; says why.
        """
        while self.is_working:
            shows()
            self._thread.join(0.2)
        if self._error:
            raise self._error
        # Python remembers which folders had no such package.
        importlib.invalidate_caches()

    def _work(self) -> None:
        try:
            if not bootstrap.is_complete(self._extra):
                with bootstrap.alone(say=self._hear):
                    self._install()
            download(self._archives, self._process, progress=self._hear, prefix=NICE)
        except DevstackError as error:
            self._error = error
        except Exception as error:  # noqa: BLE001 - `wait` raises it elsewhere
            self._error = DevstackError(f"The installation failed: {error!r}")
        self._took = time.monotonic() - self._begun

    def _install(self) -> None:
        if bootstrap.is_complete(self._extra):
            return
        with bootstrap.adding(self._extra) as command:
            self._process.run([*NICE, *command], name="pip", progress=self._hear)

    def _hear(self, line: str) -> None:
        """Keep what pip or the download says, short enough for one line."""
        if text := line.strip().partition(" (from")[0]:
            self._line = text[:60]
