"""
Every promise holds in thousands of random histories of faults.

`tests/run.py --nightly` plays many more; TESTS_HISTORIES sets their number.
"""

from __future__ import annotations

import pytest

from tests.machine import HISTORIES

from .__main__ import main
from .ahead import Histories
from .cluster_faults import CLUSTER_FAULTS
from .faults import FAULTS, LEDGER_FAULTS
from .history import play
from .plan import (
    CLUSTERS_PROFILES,
    DELIVERIES,
    LEDGER_PROFILES,
    MARKING_PROFILES,
    SHARDS_PROFILES,
    Weather,
)
from .tally import explain

# It waits as long as histories are played.
pytestmark = pytest.mark.timeout(0)

MARKING, LEDGER, CLUSTERS = "at-least-once", "exactly-once", "several-clusters"
SHARDS = "shards-exactly-once"
PLAYED = {
    "pipelined": HISTORIES // 2,
    "marks-in-memory": HISTORIES // 4,
    MARKING: HISTORIES // 4,
    "failover": HISTORIES // 20,
    LEDGER: HISTORIES * 3 // 10,
    CLUSTERS: HISTORIES * 3 // 100,
    "paused": HISTORIES // 20,
    "paused-exactly-once": HISTORIES // 40,
    "shards": HISTORIES // 20,
    SHARDS: HISTORIES // 10,
}
"""How many histories of each relay."""
BLOCKS = 10
SHOWN = 3
"""Broken histories of a block that a failing test tells in full."""


def block_of(number: int, delivery: str) -> range:
    """Return the seeds of one block."""
    size = max(1, PLAYED[delivery] // BLOCKS)
    return range(number * size, (number + 1) * size)


def begin(histories: Histories) -> None:
    for number in range(BLOCKS):
        for delivery in PLAYED:
            histories.begin(block_of(number, delivery), delivery)


@pytest.mark.parametrize("block", range(BLOCKS))
@pytest.mark.parametrize("delivery", PLAYED)
def test_every_promise_holds(histories: Histories, delivery: str, block: int) -> None:
    """Each relay's promises: see promises.py, ledger_… and cluster_promises.py."""
    seeds = block_of(block, delivery)
    tally = histories.tally(seeds, delivery)

    stories = [explain(seed, delivery) for seed in list(tally.broken)[:SHOWN]]
    assert not tally.broken, "\n\n".join([str(tally.broken), *stories])


def test_every_kind_of_trouble_comes_about(histories: Histories) -> None:
    """No fault of the plans is dead code, and each one leaves its traces."""
    tally = histories.tally(range(80 * len(MARKING_PROFILES)), MARKING)

    assert set(FAULTS) <= set(tally.faults)
    assert {kind for kind in COUNTED if not tally.faults[kind]} == set()
    assert {what for what in TRACES if not tally.figures[what]} == set()
    assert {"vacancy after handover", "vacancy after crash"} == set(tally.longest)


def test_every_kind_of_trouble_befalls_the_ledger_relay(
    histories: Histories,
) -> None:
    tally = histories.tally(range(40 * len(LEDGER_PROFILES)), LEDGER)

    assert set(LEDGER_FAULTS) <= set(tally.faults)
    kinds = (COUNTED - {"queue full"}) | LEDGER_COUNTED
    assert {kind for kind in kinds if not tally.faults[kind]} == set()
    assert {what for what in LEDGER_TRACES if not tally.figures[what]} == set()


def test_every_kind_of_trouble_befalls_several_clusters(histories: Histories) -> None:
    tally = histories.tally(range(25 * len(CLUSTERS_PROFILES)), CLUSTERS)

    assert {kind for kind in CLUSTERS_COUNTED if not tally.faults[kind]} == set()
    assert {what for what in CLUSTERS_TRACES if not tally.figures[what]} == set()


def test_every_kind_of_trouble_befalls_several_shards(histories: Histories) -> None:
    tally = histories.tally(range(25 * len(SHARDS_PROFILES)), SHARDS)

    assert {kind for kind in SHARDS_COUNTED if not tally.faults[kind]} == set()
    assert {what for what in LEDGER_TRACES if not tally.figures[what]} == set()


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
    "row locked",
    "row refused",
    "savepoint rolled back",
    "statement refused",
    "statement slow",
    "statement unanswered",
    "thread late",
    "thread preempted",
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


LEDGER_COUNTED = {
    "abort unanswered",
    "commit unanswered",
    "credential refused",
    "fenced",
    "id set by hand",
    "init unanswered",
    "opened",
    "produce unanswered",
    "send offsets unanswered",
    "transaction prepared",
}

LEDGER_TRACES = {
    "acquired",
    "came back after a failover",
    "drains",
    "fenced",
    "lost by a failover",
    "revoked",
    "transactions",
}


CLUSTERS_COUNTED = {
    *CLUSTER_FAULTS,
    "broker_outage",
    "change late",
    "crash",
    "group message lost",
    "id set by hand",
    "poison: size",
    "row of an old transaction",
    "row without a time",
    "statement unanswered",
    "table_outage",
    "transaction prepared",
}

CLUSTERS_TRACES = {
    "duplicates",
    "fenced",
    "own rows sent in time",
    "records sent by two clusters or more",
    "records taken over",
    "refreshed",
}


SHARDS_COUNTED = {
    "another number of shards",
    "crash",
    "fenced",
    "freeze",
    "id set by hand",
    "promote",
    "row locked",
    "statement unanswered",
    "suspend",
    "transaction prepared",
}


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("seed", range(len(MARKING_PROFILES)))
def test_a_seed_plays_the_same_history_in_every_process(
    histories: Histories, seed: int, delivery: str
) -> None:
    """Neither the order of hashes nor a clock has a say in it."""
    elsewhere = histories.trace(seed, delivery)
    here = play(seed, delivery, is_tracing=True)

    assert here.trace == elsewhere.trace
    assert len(here.trace) > 50


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_a_trace_does_not_change_the_history(delivery: str) -> None:
    traced = play(6, delivery, is_tracing=True)

    assert traced.figures == play(6, delivery).figures


def test_a_graceful_history_has_no_duplicates(histories: Histories) -> None:
    step = len(MARKING_PROFILES)
    tally = histories.tally(range(0, 80 * step, step), MARKING)

    assert {"graceful": 80} == tally.profiles
    assert 0 == tally.figures["duplicates"]
    assert MARKING_PROFILES[0].weather == Weather()


def test_nothing_is_taken_over_while_all_outages_are_brief(
    histories: Histories,
) -> None:
    """So that two clusters never send the same record."""
    step = len(CLUSTERS_PROFILES)
    for profile in (0, 1):
        tally = histories.tally(range(profile, 20 * step, step), CLUSTERS)

        assert {CLUSTERS_PROFILES[profile].name: 20} == tally.profiles
        assert 0 == tally.figures["records taken over"]
        assert 0 == tally.figures["records sent by two clusters or more"]


def test_a_history_can_be_replayed(capsys: pytest.CaptureFixture[str]) -> None:
    """`python -m tests.simulation --seed 123 --trace`"""
    assert 0 == main(["--seed", "123", "--trace"])

    output = capsys.readouterr().out
    assert output.startswith("seed 123, at-least-once, profile ")
    assert "leader_acquired" in output
    assert output.endswith("every promise held\n")


def test_a_history_of_the_ledger_relay_can_be_replayed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`python -m tests.simulation --delivery exactly-once --seed 123 --trace`"""
    assert 0 == main(["--delivery", LEDGER, "--seed", "123", "--trace"])

    assert "reader  sees " in capsys.readouterr().out


def test_a_history_of_several_clusters_can_be_replayed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`python -m tests.simulation --delivery several-clusters --seed 122 --trace`"""
    assert 0 == main(["--delivery", CLUSTERS, "--seed", "122", "--trace"])

    output = capsys.readouterr().out
    assert "MAXIMUM_DELAY" in output
    assert "1 to 0  deletes " in output


def test_a_history_of_several_shards_can_be_replayed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`python -m tests.simulation --delivery shards-exactly-once --seed 2 --trace`"""
    assert 0 == main(["--delivery", SHARDS, "--seed", "2", "--trace"])

    output = capsys.readouterr().out
    assert output.startswith("shards: ")
    assert " shards\n" in output


def test_a_broken_promise_is_shown_and_fails(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert 1 == main(["--seed", "10", "--mutant", "barrier-down-at-the-ack"])

    assert "P-BARRIER" in capsys.readouterr().out
