"""
A server process that cannot outlive its owner.

The owner's side of `keeper.py`: run commands, signal them, wait for them. No
clean-up is owed at exit, since the keeper sees its input close however the
owner ends.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from select import select

from .service import DevstackError
from .waiting import StallDetector, Stalled, work_done

PATIENCE = 10.0
"""Seconds for the keeper to end by itself; it gives a server two of them."""

_keepers: weakref.WeakSet[KeptProcess] = weakref.WeakSet()


class KeptProcess:
    """
    One command at a time, in a temporary folder that vanishes with the owner.

    Used by one thread at a time, except for `close`.
    """

    def __init__(
        self, name: str, *, ending: signal.Signals, user: str | None = None
    ) -> None:
        """
        Make the folder.

        Args:
            name: Part of the folder's name.
            ending: What makes the server end at once, when all is over.
            user: Whom the commands run as; only root can choose.
        """
        keeper = str(Path(__file__).with_name("keeper.py"))
        self._keeper = subprocess.Popen(
            [
                *(sys.executable, "-I", "-S", keeper),
                *(f"django-outbox-{name}-", str(int(ending)), user or ""),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        assert self._keeper.stdin is not None
        assert self._keeper.stdout is not None
        self._commands, self._answers = self._keeper.stdin, self._keeper.stdout
        _keepers.add(self)
        self._unread = b""
        self._pid: int | None = None
        self.folder = Path(self._answer())
        """The commands' working directory; their output is in its file `log`."""

    def start(self, command: list[str]) -> None:
        """Start a command; the one before must have ended."""
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
        Run a command to its end, however long it takes while it gets on.

        Args:
            name: what errors call it; by default, as its program.
            progress: hears each line that it prints.

        Raises:
            DevstackError: it failed; quotes the end of its output.
            Stalled: it did nothing for a while.
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
                        f"{name} does nothing any more: no output,"
                        f" no input, no processor time. {self.explain()}"
                    )
        # Not by wait(), which takes a closed process for one that ended well.
        code, self._pid = int(self._answer()), None
        if code:
            raise DevstackError(f"{name} failed with code {code}. {self.explain()}")

    def is_running(self) -> bool:
        """Whether the command has not ended yet."""
        if self._pid is not None and self._is_answer_there(0.0):
            self.wait(0.0)
        return self._pid is not None

    def signal(self, number: signal.Signals) -> None:
        """Signal the command's whole process group, if it runs."""
        if self.is_running() and self._pid is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._pid, number)

    def kill(self) -> None:
        """Kill the command with its children, which may have left its group."""
        import psutil

        if self.is_running() and self._pid is not None:
            children: list[psutil.Process] = []
            with suppress(psutil.NoSuchProcess):
                command = psutil.Process(self._pid)
                # It must not start one more between the count and the kill.
                command.suspend()
                children = command.children(recursive=True)
                for process in (command, *children):
                    process.kill()
            self.wait(10.0)
            # What they hold keeps the next command from starting.
            psutil.wait_procs(children, timeout=10.0)

    def wait(self, timeout: float) -> int:
        """Wait until the command has ended; its exit code."""
        if self._pid is None:
            return 0
        if not self._is_answer_there(timeout):
            raise DevstackError(
                f"Still running after {timeout:.0f} s. {self.explain()}"
            )
        code = int(self._answer())
        self._pid = None
        return code

    def explain(self, lines: int = 15) -> str:
        """The end of what the commands printed, for error messages."""
        try:
            text = (self.folder / "log").read_text("utf-8", errors="replace")
        except OSError:
            return "It left no output."
        tail = text.splitlines()[-lines:]
        return "The end of its output:\n" + "\n".join(tail) if tail else "No output."

    def close(self) -> None:
        """End the command and remove the folder; callable from any thread."""
        self.let_go()
        try:
            self._keeper.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            # A copy of the pipe is still open somewhere: the keeper sees no end.
            self._keeper.terminate()
            self._keeper.wait()
        self._pid = None
        self._answers.close()

    def let_go(self) -> None:
        """Close this process's end of the pipe, the keeper's sign to end."""
        self._commands.close()

    def _is_answer_there(self, timeout: float) -> bool:
        with _closed_means_error():
            return bool(self._unread or select([self._answers], [], [], timeout)[0])

    def _answer(self) -> str:
        """The keeper's next line; none after `close`, even if one was read before."""
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
    """Translate what pipes raise when another thread has closed them."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise DevstackError("The server was closed.") from error


def _forget_keepers() -> None:
    """In a forked child: a copy of the pipe must not keep the servers alive."""
    for kept in _keepers:
        kept.let_go()


os.register_at_fork(after_in_child=_forget_keepers)
