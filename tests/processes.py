"""Child processes of tests: started, signalled, listened to, ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TextIO, TypeVar

from django_outbox.clock import boottime_ns

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[1]
MANAGE = ROOT / "example_project" / "manage.py"

TIMEOUT = 60.0
"""Seconds for a process to say or do something, on a slow machine."""

Event = dict[str, Any]


def manage(*arguments: str, environment: Mapping[str, str] | None = None) -> str:
    """Run a command of the example project to its end; return what it printed."""
    ended = subprocess.run(
        [sys.executable, str(MANAGE), *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=2 * TIMEOUT,
    )
    assert ended.returncode == 0, ended.stdout
    return ended.stdout


class Process:
    """
    A process that is listened to: JSON lines on its output are events.

    It has ended when a `with` block on it ends.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        cwd: Path | None = None,
    ) -> None:
        self.name = name
        self.events: list[Event] = []
        self.output: list[str] = []
        """Lines on standard output that are not JSON."""
        self.log: list[str] = []
        """Lines on standard error."""
        self._news = threading.Condition()
        self._process = subprocess.Popen(
            command,
            env=dict(environment),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._readers = [
            threading.Thread(target=self._read, args=arguments, daemon=True)
            for arguments in (
                (self._process.stdout, self._keep_output),
                (self._process.stderr, self.log.append),
            )
        ]
        self._reading = len(self._readers)
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def leads(self) -> bool:
        """Whether it leads, as far as it has said."""
        said = self.all("leader_acquired", "leader_revoked", "leader_fenced")
        return bool(said) and said[-1]["event"] == "leader_acquired"

    def all(self, *kinds: str, after: int = 0) -> list[Event]:
        """Its events of these kinds, or of any, after a moment; in order."""
        return [
            event
            for event in list(self.events)
            # Other commands write documents, which are no events.
            if event.get("event") in (kinds or {event.get("event")})
            and event["boottime_ns"] > after
        ]

    def wait_for(self, *kinds: str, after: int = 0, timeout: float = TIMEOUT) -> Event:
        """The first event of one of these kinds after a moment."""
        return self._wait_for(
            lambda: next(iter(self.all(*kinds, after=after)), None), kinds, timeout
        )

    def wait_for_log(self, text: str, timeout: float = TIMEOUT) -> str:
        """The first line of its log that has this text in it."""
        return self._wait_for(lambda: _first(self.log, text), text, timeout)

    def wait_for_output(self, text: str, timeout: float = TIMEOUT) -> str:
        """The first line of its output, but for events, that has this text in it."""
        return self._wait_for(lambda: _first(self.output, text), text, timeout)

    def signal(self, number: signal.Signals) -> int:
        """Send a signal; the moment at which it was sent."""
        moment = boottime_ns()
        self._process.send_signal(number)
        return moment

    def terminate(self) -> int:
        return self.signal(signal.SIGTERM)

    def kill(self) -> int:
        """End it as a crash does; the moment of the crash."""
        moment = self.signal(signal.SIGKILL)
        self.exit_code()
        return moment

    def pause(self) -> int:
        """Stop it and return when it stands still."""
        moment = self.signal(signal.SIGSTOP)
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), status
        return moment

    def resume(self) -> int:
        return self.signal(signal.SIGCONT)

    def exit_code(self, timeout: float = TIMEOUT) -> int:
        """Wait for its end; all that it said has been read then."""
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{self.name} still runs after {timeout} s\n{self.report()}"
            ) from None
        for reader in self._readers:
            reader.join(timeout)
        return code

    def end(self) -> None:
        """End it at once if it has not ended, even when it stands still."""
        if self.is_running:
            self.kill()
        self.exit_code()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def cpu_seconds(self) -> float:
        """User and system time so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text("ascii").rpartition(")")[2]
        ticks = sum(map(int, fields.split()[11:13]))
        return ticks / os.sysconf("SC_CLK_TCK")

    def report(self) -> str:
        """All that it said, for the person who reads a failure."""
        lines = [json.dumps(event) for event in list(self.events)]
        return "\n".join([f"--- {self.name}", *lines, *self.output, *self.log])

    def _wait_for(
        self, find: Callable[[], T | None], what: object, timeout: float
    ) -> T:
        with self._news:
            self._news.wait_for(lambda: find() or not self._reading, timeout)
            found = find()
        assert found, f"{self.name}: no {what!r} within {timeout} s\n{self.report()}"
        return found

    def _read(self, stream: TextIO, keep: Callable[[str], None]) -> None:
        for line in stream:
            with self._news:
                keep(line.rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self._reading -= 1
            self._news.notify_all()

    def _keep_output(self, line: str) -> None:
        try:
            self.events.append(json.loads(line))
        except ValueError:
            self.output.append(line)


class Processes:
    """Processes that share an environment; all have ended when the block ends."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = environment
        self.all: list[Process] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.all:
            process.end()
            # pytest shows it when the test has failed.
            sys.stdout.write(process.report() + "\n")

    def launch(self, name: str, *command: str, **variables: str) -> Process:
        """Start one; `variables` are its environment's alone."""
        process = Process(name, command, {**self.environment, **variables})
        self.all.append(process)
        return process


def _first(lines: Sequence[str], text: str) -> str | None:
    return next((line for line in lines if text in line), None)
