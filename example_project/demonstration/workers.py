"""
Worker processes: several harvesters and one consumer.

Starts and kills them; a thread for each process reads the JSON events on its
standard output.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import IO, Any, Final

from django_outbox.clock import boottime_ns
from django_outbox.devstack import DevstackError
from django_outbox.devstack.waiting import wait_while_moving, work_done

MANAGE = Path(__file__).resolve().parents[1] / "manage.py"


CONSUMER = "billing"
"""Name of the consumer process, and of its group."""

PERIODIC: Final = frozenset({"meter_read", "consumer_read"})
"""Events that are sent even if nothing has changed."""

SHUTDOWN_TIMEOUT: Final = 60.0
"""Seconds for a graceful shutdown of all processes before they are killed."""


class Workers:
    """
    `manage.py runharvester` and `runconsumer`; all stop when the block ends.

    Args:
        names: Names of the processes; `CONSUMER` is the consumer.
        environment: Additional environment variables.
    """

    def __init__(
        self, names: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        self.names = names
        self._environment = environment or {}
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._started: dict[str, int] = {}
        """When each was started, in nanoseconds."""
        self._logs: dict[str, IO[bytes]] = {}
        self._events: list[dict[str, Any]] = []

    def __enter__(self) -> Workers:
        try:
            for name in self.names:
                self.start(name)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()

    def start(self, name: str) -> None:
        """Start or restart a process."""
        command = (
            ["runconsumer", "--group", CONSUMER]
            if name == CONSUMER
            else ["runharvester"]
        )
        self._started[name] = boottime_ns()
        self._logs[name] = TemporaryFile()  # noqa: SIM115 - outlives the block
        process = subprocess.Popen(
            [
                *(sys.executable, str(MANAGE), *command),
                *("--name", name, "--log-format", "json"),
            ],
            env={**os.environ, **self._environment},
            stdout=subprocess.PIPE,
            stderr=self._logs[name],
            text=True,
        )
        self._processes[name] = process
        threading.Thread(target=self._listen, args=(process,), daemon=True).start()

    def kill(self, name: str) -> None:
        """Kill a process with SIGKILL, as a crash would."""
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def running(self) -> int:
        """Return the number of running processes."""
        return sum(process.poll() is None for process in self._processes.values())

    def said(
        self, kind: str, *, name: str = "", after_ns: int = 0
    ) -> list[dict[str, Any]]:
        """Return the events of one kind after a moment, of all processes or of one."""
        return [
            event
            for event in list(self._events)
            if event["event"] == kind and event["boottime_ns"] > after_ns
            if name in {"", event["name"]}
        ]

    def wait_for(
        self,
        kind: str,
        *,
        name: str = "",
        after_ns: int = 0,
        shows: Callable[[], object] = lambda: None,
    ) -> dict[str, Any]:
        """
        Return the first event of a kind after a moment.

        Raises:
            DevstackError: a process has ended, or there is no progress.
        """

        def found() -> list[dict[str, Any]]:
            return self.said(kind, name=name, after_ns=after_ns)

        wait_while_moving(
            found,
            what=f"{kind} from {name or ', '.join(self.names)}",
            progress=self.progress,
            shows=shows,
        )
        return found()[0]

    def wait_until_ready(self) -> None:
        """Wait until all harvesters are ready and one leads."""
        for name in self.names:
            # The consumer is only ready after the first order: it needs the topic.
            if name != CONSUMER:
                self.wait_for("ready", name=name)
        self.wait_for("leader_acquired")

    def leader(self) -> str:
        """Return the name of the most recently elected process."""
        elected = self.said("leader_acquired")
        return str(max(elected, key=lambda event: event["boottime_ns"])["name"])

    def progress(self) -> tuple[object, ...]:
        """
        Return a value that changes while the processes make progress.

        Counts events, and the CPU time and I/O of processes that are starting.

        Raises:
            DevstackError: a process has ended without being killed here.
        """
        starting = []
        for name, process in list(self._processes.items()):
            if (code := process.poll()) is not None:
                raise DevstackError(
                    f"{name} exited with code {code}.\n{self._end_of_log(name)}"
                )
            if not self.said("ready", name=name, after_ns=self._started[name]):
                starting.append(process.pid)
        changes = sum(event["event"] not in PERIODIC for event in list(self._events))
        return changes, work_done(starting)

    def _end(self) -> None:
        try:
            for process in self._processes.values():
                process.send_signal(signal.SIGTERM)
            deadline = time.monotonic() + SHUTDOWN_TIMEOUT
            for process in self._processes.values():
                with suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, deadline - time.monotonic()))
        finally:
            # Also after another Ctrl-C.
            for process in self._processes.values():
                process.kill()

    def _end_of_log(self, name: str, lines: int = 5) -> str:
        log = self._logs[name]
        log.seek(0)
        return "\n".join(log.read().decode(errors="replace").splitlines()[-lines:])

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            # A killed process may leave an incomplete line.
            with suppress(json.JSONDecodeError):
                self._events.append(json.loads(line))
