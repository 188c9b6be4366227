"""
Which tests one process of a run takes together, and in which order.

A file's tests share fixtures and stay together; so do the tests of some folders,
each of which shares something costly. Each process has servers of its own.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Final

import pytest

TOGETHER: Final = ("pipeline", "install", "simulation")
"""Folders with a Spark session, built wheels and a pool of workers."""

ALONE: Final = (
    "tests/acceptance/chaos/test_broker_failures.py",
    "tests/acceptance/chaos/test_chaos.py",
    "tests/acceptance/chaos/test_soak.py",
    "tests/acceptance/test_bad_day.py",
    "tests/acceptance/test_catching_up.py",
    "tests/acceptance/test_crash.py",
    "tests/acceptance/test_exactly_once.py",
    "tests/acceptance/test_handover.py",
    "tests/acceptance/test_outages.py::test_a_broker_that_is_away_for_a_while",
    "tests/acceptance/test_outages.py::test_a_broker_that_stands_still",
    "tests/acceptance/test_outages.py::test_a_signal_while_everything_is_away",
    "tests/acceptance/test_outages.py"
    "::test_a_silent_way_to_the_database_hands_leadership_over",
    "tests/acceptance/test_pause.py",
    "tests/acceptance/test_series.py",
    "tests/clusters/test_acceptance.py",
    "tests/integration/test_kafka_producer.py"
    "::test_a_topic_that_the_broker_creates_by_itself_gets_its_record",
    "tests/integration/test_kafka_producer.py"
    "::test_a_cluster_that_is_away_fails_the_record_and_blames_it_not",
    "tests/integration/test_kafka_producer.py"
    "::test_close_drops_what_is_queued_without_waiting_or_reporting",
    "tests/integration/test_listening.py::test_it_stops_at_once_and_hangs_up",
    "tests/integration/test_membership_processes.py",
)
"""Tests that count on a quiet machine. One process runs them, and last: each waits
until the others' tests have ended. In tests/acceptance they have the shortest
time-outs of which the promises hold, and all others patient ones."""

FIRST: Final = ("pipeline", "install", "acceptance", "clusters", "integration")
"""From the longest to the shortest, so that no process is left with a long one."""


def group(nodeid: str) -> str:
    """Return the name of the tests that stay together with this one."""
    if is_alone(nodeid):
        return "alone"
    folder = _folder(nodeid)
    return folder if folder in TOGETHER else nodeid.partition("::")[0]


def sort(items: list[pytest.Item]) -> None:
    """
    Put the longest groups first; random order stays within groups.

    The simulator's workers give way to everything. They take what the tests that
    run alone leave of the processors, which is more than half.
    """
    items.sort(key=_rank)


def is_alone(nodeid: str) -> bool:
    """Whether no test of another process may run at the same time."""
    return nodeid.startswith(ALONE)


def only_waits(item: pytest.Item) -> bool:
    """Whether a test waits for processes that give way to all others."""
    return _folder(item.nodeid) == "simulation"


def _rank(item: pytest.Item) -> int:
    if is_alone(item.nodeid):
        return len(FIRST) + 2
    if only_waits(item):
        return len(FIRST) + 1
    folder = _folder(item.nodeid)
    return FIRST.index(folder) if folder in FIRST else len(FIRST)


def _folder(nodeid: str) -> str:
    """Return `unit` for `tests/unit/test_x.py::test_y`."""
    return PurePosixPath(nodeid.partition("::")[0]).parent.name
