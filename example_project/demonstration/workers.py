"""
Worker processes: started, killed, and heard through their JSON events.

Several harvesters and one consumer. `show.py` asks who leads and when that
began; a thread for each process reads its standard output.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

MANAGE = Path(__file__).resolve().parents[1] / "manage.py"


CONSUMER = "billing"
"""Name of the process that consumes, and of its group."""


class Workers:
    """`manage.py runharvester` and `runconsumer`; all stop when the block ends."""

    def __init__(self, harvesters: int) -> None:
        self._names = [f"harvester-{number}" for number in range(1, harvesters + 1)]
        self._names.append(CONSUMER)
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._events: list[dict[str, Any]] = []
        self._news = threading.Condition()

    def __enter__(self) -> Workers:
        for name in self._names:
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

    def wait_for_leader(self, *, after_ns: int = 0, timeout: float) -> dict[str, Any]:
        """
        Return the first leader_acquired event after a moment.

        Raises:
            TimeoutError: when nobody leads after `timeout` seconds.
        """
        with self._news:
            if self._news.wait_for(lambda: self._acquired(after_ns), timeout):
                event = self._acquired(after_ns)
                assert event is not None
                return event
        raise TimeoutError(f"no harvester leads after {timeout:.0f} s")

    def _acquired(self, after_ns: int) -> dict[str, Any] | None:
        return next(
            (
                event
                for event in self._events
                if event["event"] == "leader_acquired"
                and event["boottime_ns"] > after_ns
            ),
            None,
        )

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with self._news:
                self._events.append(json.loads(line))
                self._news.notify_all()
