"""
Harvester processes as an operator has them.

Each is a real `manage.py runharvester` of the example project. What it says
comes from its JSON lines on standard output; the log on standard error is
kept to be shown when a test fails.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from typing import Final

import pytest

from django_outbox.clock import boottime_ns

from ..machine import nightly
from ..processes import MANAGE, TIMEOUT, Event, Process, Processes
from ..waiting import eventually

FAST = {
    "OUTBOX_SESSION_TIMEOUT": "3",
    "OUTBOX_HEARTBEAT_TIMEOUT": "1.4",
    "OUTBOX_HEARTBEAT_INTERVAL": "0.2",
}
"""The quickest timing of which the promises hold on a quiet machine: of tests that
run alone."""

PATIENT = {
    "OUTBOX_SESSION_TIMEOUT": "9",
    "OUTBOX_HEARTBEAT_TIMEOUT": "4.4",
    "OUTBOX_HEARTBEAT_INTERVAL": "0.2",
}
"""Timing with which a leader outlasts the pauses of a busy machine: of all others."""

SESSION_TIMEOUT = 3.0
HEARTBEAT_TIMEOUT = 1.4

MODES: Final[Mapping[str, Mapping[str, str]]] = {
    "pipelined": {},
    "one-per-key": {"OUTBOX_MAX_IN_FLIGHT_PER_KEY": "1"},
    "table": {"OUTBOX_MARKS": "table"},
    "ledger": {"OUTBOX_DELIVERY": "exactly-once"},
}
"""Variables of each kind of relay."""

BY_DAY: Final = ("pipelined", "ledger")
"""The default of each delivery. The other relays are tried at night, and by day
with real servers in tests/integration and tests/contracts."""


def modes(*names: str, by_day: Collection[str] = BY_DAY) -> list[object]:
    """Return these kinds of relay, or all, as parameters of a test."""
    return [
        pytest.param(name, marks=() if name in by_day else nightly)
        for name in names or MODES
    ]


class Harvesters(Processes):
    """The harvesters of one outbox, and other commands of the example project."""

    def start(self, *arguments: str, name: str = "", **variables: str) -> Process:
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
    ) -> Process:
        """Start any command of the project."""
        return self.launch(name, sys.executable, str(MANAGE), *arguments, **variables)

    def start_ready(self, count: int) -> list[Process]:
        """Start several; all are ready and the first of them leads."""
        first = self.start()
        first.wait_for("leader_acquired")
        others = [self.start() for _ in range(count - 1)]
        for harvester in others:
            harvester.wait_for("ready")
        return [first, *others]

    def wait_for_leader(
        self, *, after: int, timeout: float = TIMEOUT
    ) -> tuple[Process, Event]:
        """Who acquired leadership first after a moment, and the event."""

        def leaders() -> list[tuple[Process, Event]]:
            return [
                (harvester, event)
                for harvester in self.all
                for event in harvester.all("leader_acquired", after=after)
            ]

        found = eventually(leaders, timeout=timeout, what="a new leader")
        return min(found, key=lambda pair: int(pair[1]["boottime_ns"]))

    def terms(self, shard: int = 0) -> list[tuple[int, int, str, str]]:
        """All terms of a shard in order: begin, end (boottime_ns), leader id, name."""
        terms = []
        for harvester in self.all:
            begin = 0
            leader_id = ""
            for event in harvester.all(
                "leader_acquired", "leader_revoked", "leader_fenced"
            ):
                if event["shard"] != shard:
                    continue
                if event["event"] == "leader_acquired":
                    begin, leader_id = event["boottime_ns"], event["leader_id"]
                else:
                    end = event["boottime_ns"]
                    terms.append((begin, end, leader_id, harvester.name))
                    begin = 0
            if begin:
                terms.append((begin, boottime_ns(), leader_id, harvester.name))
        return sorted(terms)
