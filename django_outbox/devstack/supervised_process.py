"""
A server process that cannot outlive its owner.

A supervisor process runs the commands; this is the owner's side: start
commands, signal them, wait for them. The owner needs no clean-up at exit: the
supervisor's standard input closes however the owner ends.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from select import select
from typing import TYPE_CHECKING

from .service import DevstackError
from .waiting import StallDetector, Stalled, work_done

if TYPE_CHECKING:
    import psutil

STOP_LIMIT = 10.0
"""Seconds for a suspended process to stand still."""

SUPERVISOR_TIMEOUT = 10.0
"""Seconds for the supervisor to end; it gives a server two of them."""

_processes: weakref.WeakSet[SupervisedProcess] = weakref.WeakSet()


class SupervisedProcess:
    """
    Runs one command at a time, in a temporary folder that is removed at the end.

    Not thread-safe, except for `close`.
    """

    def __init__(
        self, name: str, *, ending: signal.Signals, user: str | None = None
    ) -> None:
        """
        Start the supervisor, which creates the folder.

        Args:
            name: Part of the folder's name.
            ending: Signal that ends the server at once, on close.
            user: User to run the commands as; only root can choose.
        """
        supervisor = str(Path(__file__).with_name("supervisor.py"))
        self._supervisor = subprocess.Popen(
            [
                *(sys.executable, "-I", "-S", supervisor),
                *(f"django-outbox-{name}-", str(int(ending)), user or ""),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        assert self._supervisor.stdin is not None
        assert self._supervisor.stdout is not None
        self._commands = self._supervisor.stdin
        self._answers = self._supervisor.stdout
        _processes.add(self)
        self._unread = b""
        self._pid: int | None = None
        try:
            folder = self._answer()
        except DevstackError:
            self.close()
            raise
        self.folder = Path(folder)
        """Working directory of the commands; their output is in its file `log`."""

    def start(self, command: list[str]) -> None:
        """Start a command; the previous one must have ended."""
        assert self._pid is None, "one command at a time"
        with _closed_means_error():
            self._commands.write(json.dumps(command).encode() + b"\n")
        if not (answer := self._answer()).isdigit():
            raise DevstackError(f"{command[0]} cannot be started: {answer}")
        self._pid = int(answer)

    def run(
        self,
        command: list[str],
        *,
        name: str = "",
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        """
        Run a command to its end; it may take any time while it makes progress.

        Args:
            name: Name in error messages; by default, its program.
            progress: Called with each line that it prints.

        Raises:
            DevstackError: the command failed; quotes the end of its output.
            Stalled: the command made no progress for a while.
        """
        name = name or Path(command[0]).name
        path = self.folder / "log"
        path.touch()
        begin = path.stat().st_size
        self.start(command)
        pids = [] if self._pid is None else [self._pid]
        detector, rest = StallDetector(), b""
        with path.open("rb") as log:
            log.seek(begin)
            has_ended = False
            while not has_ended:
                has_ended = self._is_answer_there(0.5)
                *lines, rest = (rest + log.read()).split(b"\n")
                for line in lines:
                    progress(line.decode(errors="replace"))
                if not has_ended and detector.is_stalled(work_done(pids, output=path)):
                    raise Stalled(
                        f"{name} makes no progress: no output, no input, no CPU time."
                        f" {self.explain()}"
                    )
        # Not wait(), which returns 0 for a closed process.
        code, self._pid = int(self._answer()), None
        if code:
            raise DevstackError(f"{name} failed with code {code}. {self.explain()}")

    def is_running(self) -> bool:
        """Whether the command is still running."""
        if self._pid is not None and self._is_answer_there(0.0):
            self.wait(0.0)
        return self._pid is not None

    def signal(self, number: signal.Signals) -> None:
        """Signal the command's process group, if it is running."""
        if self.is_running() and self._pid is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._pid, number)

    def kill(self) -> None:
        """Kill the command and its children, even if they left its process group."""
        import psutil

        if self.is_running() and self._pid is not None:
            children: list[psutil.Process] = []
            with suppress(psutil.NoSuchProcess):
                command = psutil.Process(self._pid)
                # So that it cannot start another child before it is killed.
                command.suspend()
                _wait_until_stopped(command)
                children = command.children(recursive=True)
                for process in (command, *children):
                    # Some children end by themselves when their parent is gone.
                    with suppress(psutil.NoSuchProcess):
                        process.kill()
            self.wait(10.0)
            # They hold resources that the next command needs.
            psutil.wait_procs(children, timeout=10.0)

    def wait(self, timeout: float) -> int:
        """Wait until the command has ended; return its exit code."""
        if self._pid is None:
            return 0
        if not self._is_answer_there(timeout):
            raise DevstackError(
                f"Still running after {timeout:.0f} s. {self.explain()}"
            )
        code = int(self._answer())
        self._pid = None
        return code

    def explain(self) -> str:
        """Return the last lines of output, for error messages."""
        try:
            text = (self.folder / "log").read_text("utf-8", errors="replace")
        except OSError:
            return "No output."
        tail = text.splitlines()[-15:]
        return "Last lines of output:\n" + "\n".join(tail) if tail else "No output."

    def close(self) -> None:
        """End the command and remove the folder; callable from any thread."""
        self.close_pipe()
        try:
            self._supervisor.wait(SUPERVISOR_TIMEOUT)
        except subprocess.TimeoutExpired:
            # Another process has a copy of the pipe, so it did not close.
            self._supervisor.terminate()
            self._supervisor.wait()
        self._pid = None
        self._answers.close()

    def close_pipe(self) -> None:
        """Close this process's end of the pipe; tells the supervisor to end."""
        self._commands.close()

    def _is_answer_there(self, timeout: float) -> bool:
        with _closed_means_error():
            return bool(self._unread or select([self._answers], [], [], timeout)[0])

    def _answer(self) -> str:
        """Return the supervisor's next line; after `close`, not even a buffered one."""
        if self._commands.closed:
            raise DevstackError("The server was closed.")
        while b"\n" not in self._unread:
            with _closed_means_error():
                more = self._answers.read(4096)
            if not more:
                raise DevstackError("The server was closed.")
            self._unread += more
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode()


@contextmanager
def _closed_means_error() -> Iterator[None]:
    """Translate the errors of pipes that another thread has closed."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise DevstackError("The server was closed.") from error


def _close_inherited_pipes() -> None:
    """In a forked child: its copies of the pipes must not keep the servers alive."""
    for process in _processes:
        process.close_pipe()


os.register_at_fork(after_in_child=_close_inherited_pipes)


def _wait_until_stopped(command: psutil.Process) -> None:
    """Wait until a suspended process does nothing more; it may run for a moment."""
    import psutil

    ended = (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    deadline = time.monotonic() + STOP_LIMIT
    while command.status() not in ended and time.monotonic() < deadline:
        time.sleep(0.001)
