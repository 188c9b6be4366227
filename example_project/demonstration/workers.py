"""
Worker processes: started, killed, and heard through their JSON events.

Several harvesters and one consumer. `show.py` asks who leads and when that
began; a thread for each process reads its standard output.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

MANAGE = Path(__file__).resolve().parents[1] / "manage.py"


CONSUMER = "billing"
"""Name of the process that consumes, and of its group."""


class Workers:
    """
    `manage.py runharvester` and `runconsumer`; all stop when the block ends.

    Args:
        names: of the processes; `CONSUMER` is the one that consumes.
        environment: variables of their own.
    """

    def __init__(
        self, names: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        self.names = names
        self._environment = environment or {}
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._events: list[dict[str, Any]] = []
        self._news = threading.Condition()

    def __enter__(self) -> Workers:
        for name in self.names:
            self.start(name)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for process in self._processes.values():
            process.send_signal(signal.SIGTERM)
        for process in self._processes.values():
            process.wait(30)

    def start(self, name: str) -> None:
        """Start a process, or start it again."""
        command = (
            ["runconsumer", "--group", CONSUMER]
            if name == CONSUMER
            else ["runharvester"]
        )
        process = subprocess.Popen(
            [
                *(sys.executable, str(MANAGE), *command),
                *("--name", name, "--log-format", "json"),
            ],
            env={**os.environ, **self._environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._processes[name] = process
        threading.Thread(target=self._listen, args=(process,), daemon=True).start()

    def kill(self, name: str) -> None:
        """End a process as a crash would: it can tell nobody."""
        self._processes[name].kill()
        self._processes[name].wait()

    def running(self) -> int:
        """How many have not ended."""
        return sum(process.poll() is None for process in self._processes.values())

    def said(
        self, kind: str, *, name: str = "", after_ns: int = 0
    ) -> list[dict[str, Any]]:
        """Return what all of them, or one, have said of one kind after a moment."""
        return [
            event
            for event in list(self._events)
            if event["event"] == kind and event["boottime_ns"] > after_ns
            if name in {"", event["name"]}
        ]

    def wait_for(
        self, kind: str, *, name: str = "", after_ns: int = 0, timeout: float
    ) -> dict[str, Any]:
        """
        Return the first event of a kind after a moment.

        Raises:
            TimeoutError: when there is none after `timeout` seconds.
        """

        def found() -> list[dict[str, Any]]:
            return self.said(kind, name=name, after_ns=after_ns)

        with self._news:
            if self._news.wait_for(found, timeout):
                return found()[0]
        raise TimeoutError(f"no {kind} from {self.names[0]}, … after {timeout:.0f} s")

    def wait_until_ready(self, *, timeout: float) -> None:
        """Return when all have said that they are ready, and one leads."""
        for name in self.names:
            self.wait_for("ready", name=name, timeout=timeout)
        self.wait_for_leader(timeout=timeout)

    def wait_for_leader(self, *, after_ns: int = 0, timeout: float) -> dict[str, Any]:
        """Return the first leader_acquired event after a moment."""
        return self.wait_for("leader_acquired", after_ns=after_ns, timeout=timeout)

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with self._news:
                self._events.append(json.loads(line))
                self._news.notify_all()
