"""
Harvester processes as an operator has them: started, signalled, listened to.

Each is a real `manage.py runharvester` of the example project. What it says
comes from its JSON lines on standard output; the log on standard error is
kept to be shown when a test fails.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from ..waiting import eventually

MANAGE = Path(__file__).resolve().parents[2] / "example_project" / "manage.py"

FAST = {
    "OUTBOX_SESSION_TIMEOUT": "3",
    "OUTBOX_HEARTBEAT_TIMEOUT": "1.4",
    "OUTBOX_HEARTBEAT_INTERVAL": "0.2",
}
"""The quickest timing of which the promises hold with room for a busy machine."""

SESSION_TIMEOUT = 3.0
HEARTBEAT_TIMEOUT = 1.4

START = 30.0
"""Seconds for a process to be ready, on a machine that does other things too."""

Event = dict[str, Any]


def boottime_ns() -> int:
    """The clock of the events' `boottime_ns`."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Harvester:
    """One process; made by `Harvesters.start`."""

    def __init__(
        self, name: str, command: list[str], environment: Mapping[str, str]
    ) -> None:
        self.name = name
        self.events: list[Event] = []
        self.garbage: list[str] = []
        """Lines on standard output that are no JSON."""
        self.log: list[str] = []
        """Lines on standard error."""
        self.news = threading.Condition()
        self._process = subprocess.Popen(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._readers = [
            threading.Thread(target=read, args=(stream,), daemon=True)
            for read, stream in (
                (self._read_events, self._process.stdout),
                (self._read_log, self._process.stderr),
            )
        ]
        for reader in self._readers:
            reader.start()

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
        """Its events of these kinds after a moment, in order."""
        return [
            event
            for event in list(self.events)
            if event["event"] in kinds and event["boottime_ns"] > after
        ]

    def wait_for(self, *kinds: str, after: int = 0, timeout: float = START) -> Event:
        """The first event of one of these kinds after a moment."""
        with self.news:
            self.news.wait_for(
                lambda: self.all(*kinds, after=after) or self._has_ended(), timeout
            )
        found = self.all(*kinds, after=after)
        assert found, f"{self.name}: no {kinds} within {timeout} s\n{self.report()}"
        return found[0]

    def wait_for_log(self, text: str, timeout: float = START) -> str:
        """The first line of its log that has this text in it."""

        def found() -> str | None:
            return next((line for line in list(self.log) if text in line), None)

        with self.news:
            self.news.wait_for(lambda: found() or self._has_ended(), timeout)
        line = found()
        assert line, f"{self.name}: no {text!r} within {timeout} s\n{self.report()}"
        return line

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

    def exit_code(self, timeout: float = START) -> int:
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
        return "\n".join([f"--- {self.name}", *lines, *self.garbage, *self.log])

    def _has_ended(self) -> bool:
        return not any(reader.is_alive() for reader in self._readers)

    def _read_events(self, stream: TextIO) -> None:
        for line in stream:
            with self.news:
                try:
                    self.events.append(json.loads(line))
                except ValueError:
                    self.garbage.append(line.rstrip("\n"))
                self.news.notify_all()
        self._tell_end()

    def _read_log(self, stream: TextIO) -> None:
        for line in stream:
            with self.news:
                self.log.append(line.rstrip("\n"))
                self.news.notify_all()
        self._tell_end()

    def _tell_end(self) -> None:
        with self.news:
            self.news.notify_all()


class Harvesters:
    """The harvesters of one outbox; all have ended when the block ends."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = environment
        self.all: list[Harvester] = []

    def __enter__(self) -> Harvesters:
        return self

    def __exit__(self, *exc: object) -> None:
        for harvester in self.all:
            harvester.end()
            # pytest shows it when the test has failed.
            sys.stdout.write(harvester.report() + "\n")

    def start(self, *arguments: str, name: str = "", **variables: str) -> Harvester:
        """Start one, with JSON lines; `variables` are its environment's alone."""
        name = name or f"harvester-{len(self.all) + 1}"
        return self.run(
            "runharvester",
            *("--name", name, "--log-format", "json", *arguments),
            name=name,
            **variables,
        )

    def run(
        self, *arguments: str, name: str = "manage.py", **variables: str
    ) -> Harvester:
        """Start any command of the project."""
        harvester = Harvester(
            name,
            [sys.executable, str(MANAGE), *arguments],
            {**self.environment, **variables},
        )
        self.all.append(harvester)
        return harvester

    def start_ready(self, count: int) -> list[Harvester]:
        """Start several; all are ready and the first of them leads."""
        first = self.start()
        first.wait_for("leader_acquired")
        others = [self.start() for _ in range(count - 1)]
        for harvester in others:
            harvester.wait_for("ready")
        return [first, *others]

    def wait_for_leader(
        self, *, after: int, timeout: float = START
    ) -> tuple[Harvester, Event]:
        """Who acquired leadership first after a moment, and the event."""

        def leaders() -> list[tuple[Harvester, Event]]:
            return [
                (harvester, event)
                for harvester in self.all
                for event in harvester.all("leader_acquired", after=after)
            ]

        found = eventually(leaders, timeout=timeout, what="a new leader")
        return min(found, key=lambda pair: int(pair[1]["boottime_ns"]))

    def terms(self) -> list[tuple[int, int, str, str]]:
        """All terms in order: begin, end (boottime_ns), leader id, name."""
        terms = []
        for harvester in self.all:
            begin = 0
            leader_id = ""
            for event in harvester.all(
                "leader_acquired", "leader_revoked", "leader_fenced"
            ):
                if event["event"] == "leader_acquired":
                    begin, leader_id = event["boottime_ns"], event["leader_id"]
                else:
                    end = event["boottime_ns"]
                    terms.append((begin, end, leader_id, harvester.name))
                    begin = 0
            if begin:
                terms.append((begin, boottime_ns(), leader_id, harvester.name))
        return sorted(terms)
