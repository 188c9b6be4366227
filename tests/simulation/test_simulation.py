"""
Every promise holds in ten thousand random histories of faults.

Set OUTBOX_SIMULATION_HISTORIES to play more of them, or fewer.
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor

import pytest

from .__main__ import main
from .faults import FAULTS
from .plan import PROFILES, Weather
from .tally import Tally, explain, in_parallel
from .world import play

HISTORIES = int(os.environ.get("OUTBOX_SIMULATION_HISTORIES", "10000"))
BLOCKS = 10
SHOWN = 3
"""Broken histories of a block that a failing test tells in full."""


def played(pool: ProcessPoolExecutor, seeds: range) -> Tally:
    """Play these histories on all processors."""
    *_, total = in_parallel(pool, seeds)
    return total


@pytest.mark.parametrize("block", range(BLOCKS))
def test_every_promise_holds(pool: ProcessPoolExecutor, block: int) -> None:
    """Loss, order, duplicates, leadership, recovery: see promises.py."""
    size = max(1, HISTORIES // BLOCKS)
    tally = played(pool, range(block * size, (block + 1) * size))

    stories = [explain(seed) for seed in list(tally.broken)[:SHOWN]]
    assert not tally.broken, "\n\n".join([str(tally.broken), *stories])


def test_every_kind_of_trouble_comes_about(pool: ProcessPoolExecutor) -> None:
    """No fault of the plans is dead code, and each one leaves its traces."""
    tally = played(pool, range(200 * len(PROFILES)))

    assert set(FAULTS) <= set(tally.faults)
    assert {kind for kind in COUNTED if not tally.faults[kind]} == set()
    assert {what for what in TRACES if not tally.figures[what]} == set()
    assert {"vacancy after handover", "vacancy after crash"} == set(tally.longest)


COUNTED = {
    "ack lost",
    "ack without offset",
    "group message lost",
    "group message slow",
    "poison: size",
    "poison: topic",
    "producer broken",
    "queue full",
    "request lost",
    "request refused",
    "request slow",
    "savepoint rolled back",
    "statement refused",
    "statement slow",
    "statement unanswered",
    "thread late",
    "transaction rolled back",
}

TRACES = {
    "acquired",
    "drains",
    "drains that overran",
    "duplicates",
    "duplicates of reported failures",
    "fenced",
    "refreshed",
    "revoked",
    "stale duplicates",
}


@pytest.mark.parametrize("seed", range(len(PROFILES)))
def test_a_seed_plays_the_same_history_in_every_process(
    pool: ProcessPoolExecutor, seed: int
) -> None:
    """Neither the order of hashes nor a clock has a say in it."""
    elsewhere = pool.submit(play, seed, is_tracing=True).result()
    here = play(seed, is_tracing=True)

    assert here.trace == elsewhere.trace
    assert len(here.trace) > 50


def test_a_trace_does_not_change_the_history() -> None:
    assert play(6, is_tracing=True).figures == play(6).figures


def test_a_graceful_history_has_no_duplicates(pool: ProcessPoolExecutor) -> None:
    tally = played(pool, range(0, 200 * len(PROFILES), len(PROFILES)))

    assert {"graceful": 200} == tally.profiles
    assert 0 == tally.figures["duplicates"]
    assert PROFILES[0].weather == Weather()


def test_a_history_can_be_replayed(capsys: pytest.CaptureFixture[str]) -> None:
    """`python -m tests.simulation --seed 123 --trace`"""
    assert 0 == main(["--seed", "123", "--trace"])

    output = capsys.readouterr().out
    assert output.startswith("seed 123, profile ")
    assert "leader_acquired" in output
    assert output.endswith("every promise held\n")


def test_a_broken_promise_is_shown_and_fails(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert 1 == main(["--seed", "0", "--mutant", "barrier-down-at-the-ack"])

    assert "P-BARRIER" in capsys.readouterr().out
