"""What of a ledger holds under the timeline that the database has now."""

from __future__ import annotations

import logging

import pytest

from django_outbox.relay.ledger.committed_ids import IdRange
from django_outbox.relay.ledger.ports import Ledger
from django_outbox.relay.ledger.timelines import believed

from .samples import record

NOW, FORMER = "7/2", "7/1"
RELAYED = (IdRange(low=1, high=9, step=2, newest=0),)


@pytest.mark.parametrize("clusters", [1, 2])
def test_without_a_ledger_nothing_is_in_the_log(clusters: int) -> None:
    assert believed(None, NOW, clusters=clusters) == Ledger(timeline=NOW, records=[])


@pytest.mark.parametrize("clusters", [1, 2])
def test_a_ledger_of_the_same_history_holds(clusters: int) -> None:
    ledger = Ledger(timeline=NOW, records=[record(1)])
    assert believed(ledger, NOW, clusters=clusters) == ledger


@pytest.mark.parametrize("clusters", [1, 2])
def test_a_ledger_of_another_history_is_void(
    clusters: int, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = Ledger(timeline=FORMER, records=[record(1)], relayed=RELAYED)

    found = believed(ledger, NOW, clusters=clusters)

    assert found == Ledger(timeline=NOW, records=[])
    assert f"of database timeline {FORMER} (now {NOW})" in caplog.text


def test_what_only_other_clusters_have_written_holds_and_gets_a_history() -> None:
    ledger = Ledger(timeline="", records=[], relayed=RELAYED)
    for clusters in (2, 3):
        found = believed(ledger, NOW, clusters=clusters)
        assert found == Ledger(timeline=NOW, records=[], relayed=RELAYED)


def test_one_cluster_alone_believes_no_ledger_without_a_history() -> None:
    ledger = Ledger(timeline="", records=[record(1)])
    assert not believed(ledger, NOW, clusters=1).records


def test_one_cluster_alone_has_no_use_for_ranges_of_ids(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    ledger = Ledger(timeline=NOW, records=[record(1)], relayed=RELAYED)

    assert believed(ledger, NOW, clusters=2) == ledger
    assert not caplog.records
    found = believed(ledger, NOW, clusters=1)

    assert found == Ledger(timeline=NOW, records=ledger.records)
    assert "1 ranges of ids" in caplog.text
