"""When a takeover begins and ends."""

from __future__ import annotations

from django_outbox.message.record import Record
from django_outbox.relay.takeovers import TakeoverChange, Takeovers
from tests.unit.samples import record


def foreign(number: int, key: str = "k", *, cluster_id: int = 2) -> Record:
    """Make a record of another cluster than 0."""
    return record(number, key)._replace(cluster_id=cluster_id)


def test_a_takeover_begins_with_the_first_record_of_another_cluster() -> None:
    takeovers = Takeovers(this_cluster=0, quiet=10.0)

    takeovers.found("id", [record(1), foreign(2), foreign(5)], 100.0)
    takeovers.found("id", [foreign(8)], 101.0)

    assert takeovers.news() == [TakeoverChange("id", 2, 2, has_ended=False)]
    assert takeovers.news() == []


def test_a_takeover_ends_when_nothing_was_found_for_a_while() -> None:
    takeovers = Takeovers(this_cluster=0, quiet=10.0)
    takeovers.found("id", [foreign(2)], 100.0)
    takeovers.found("id", [foreign(5)], 105.0)
    takeovers.news()

    takeovers.found("id", [], 114.9)
    assert takeovers.news() == []
    takeovers.found("id", [], 115.0)
    assert takeovers.news() == [TakeoverChange("id", 2, 2, has_ended=True)]


def test_takeovers_end_with_the_leadership() -> None:
    takeovers = Takeovers(this_cluster=0, quiet=10.0)
    takeovers.found("id", [foreign(2), foreign(1, cluster_id=1)], 100.0)
    takeovers.news()

    takeovers.stop()

    assert {news.origin for news in takeovers.news() if news.has_ended} == {1, 2}
    takeovers.stop()
    assert takeovers.news() == []
