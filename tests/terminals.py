"""
Commands on a terminal of their own, and what somebody who looks at it sees.

A pseudo-terminal feeds a terminal emulator, so that tests read rows of a screen
and not the escape codes that have made them.
"""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

import pyte

ROWS = 200
"""So many that nothing scrolls out of sight."""


class Terminal:
    """
    One command with a terminal for its input, output and errors.

    Args:
        columns: the width of the terminal.
        term: its kind, as terminfo names it.
        stderr: where errors go, if not to the terminal.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        columns: int = 160,
        term: str = "xterm-256color",
        stderr: int | None = None,
    ) -> None:
        self.raw = b""
        """All bytes that came."""
        self._screen = pyte.Screen(columns, ROWS)
        self._stream = pyte.ByteStream(self._screen)
        self._changed = threading.Condition(threading.RLock())
        self._has_ended = False
        self._master, slave = pty.openpty()
        size = struct.pack("HHHH", ROWS, columns, 0, 0)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, size)
        self.process = subprocess.Popen(
            command,
            env={**_without_terminal(environment), "TERM": term},
            stdin=slave,
            stdout=slave,
            stderr=slave if stderr is None else stderr,
            start_new_session=True,
            preexec_fn=_take_terminal,  # noqa: PLW1509
        )
        os.close(slave)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._reader.join()
        os.close(self._master)

    @property
    def rows(self) -> list[str]:
        """The rows of the screen, down to the last that is not blank."""
        with self._changed:
            rows = [row.rstrip() for row in self._screen.display]
        while rows and not rows[-1]:
            rows.pop()
        return rows

    @property
    def has_cursor(self) -> bool:
        """Whether the cursor is visible."""
        return not self._screen.cursor.hidden

    def type(self, text: bytes) -> None:
        """Type at the keyboard."""
        os.write(self._master, text)

    def wait_until(
        self, holds: Callable[[list[str]], bool], *, timeout: float = 180.0
    ) -> list[str]:
        """Return the rows as soon as they are as wanted."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._has_ended or holds(self.rows), timeout=timeout
            )
        rows = self.rows
        assert holds(rows), "\n".join(["never seen on:", *rows])
        return rows

    def wait_for(self, text: str, *, timeout: float = 180.0) -> list[str]:
        """Return the rows as soon as one of them has this text."""
        return self.wait_until(lambda rows: text in "\n".join(rows), timeout=timeout)

    def exit_code(self, *, timeout: float = 180.0) -> int:
        """Wait for the end, and until all of the output was read."""
        code = self.process.wait(timeout)
        self._reader.join(timeout)
        return code

    def _read(self) -> None:
        while chunk := self._read_chunk():
            with self._changed:
                self.raw += chunk
                self._stream.feed(chunk)
                self._changed.notify_all()
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def _read_chunk(self) -> bytes:
        try:
            return os.read(self._master, 65_536)
        except OSError:
            # Nobody has the other end open any more.
            return b""


def _without_terminal(environment: Mapping[str, str]) -> dict[str, str]:
    """Drop the variables that describe the terminal of the test run."""
    described = ("COLUMNS", "LINES", "TERM")
    return {name: v for name, v in environment.items() if name not in described}


def _take_terminal() -> None:
    """Have a typed Ctrl-C become a signal, as in a shell."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    # Background jobs of a shell ignore it, and so would all that they start.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
