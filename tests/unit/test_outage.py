"""What counts as an outage of the table, and what is logged of it."""

from __future__ import annotations

import logging

import pytest

from django_outbox.exceptions import DatabaseBusy, DatabaseUnavailable
from django_outbox.harvester.wiring import _Probe
from django_outbox.relay.availability import (
    FIRST_BACKOFF,
    LAST_BACKOFF,
    REPEAT_WINDOW,
    Availability,
    OutageLog,
)
from django_outbox.settings.options import OutboxSettings
from tests.fakes.outbox import InMemoryOutbox


def unavailable(*, waited: float = 0.0) -> DatabaseUnavailable:
    error = DatabaseUnavailable("no answer")
    error.waited = waited
    return error


def test_an_answer_is_missing_since_it_was_asked_for() -> None:
    outage = Availability()
    outage.lost(unavailable(waited=2.0), 10.0)
    outage.lost(unavailable(waited=1.0), 12.0)

    assert outage.lasts(12.0) == 4.0
    outage.reached(13.0)
    assert outage.lasts(13.0) == 0.0


def test_a_lock_is_no_outage_and_ends_one() -> None:
    outage = Availability()
    outage.lost(DatabaseBusy("a lock"), 10.0)
    assert outage.lasts(99.0) == 0.0

    outage.lost(unavailable(), 100.0)
    outage.lost(DatabaseBusy("a lock"), 105.0)
    assert outage.lasts(110.0) == 0.0


def test_retries_come_later_and_later_up_to_a_bound() -> None:
    outage = Availability()
    pauses = [outage.lost(DatabaseBusy("a lock"), 0.0) for _ in range(9)]

    assert pauses[:3] == [FIRST_BACKOFF, 2 * FIRST_BACKOFF, 4 * FIRST_BACKOFF]
    assert pauses == sorted(pauses)
    assert pauses[-1] == LAST_BACKOFF


def test_a_lock_is_logged_once_until_it_is_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    outage = Availability()
    for statement in ("page", "sweep", "page"):
        outage.lost(DatabaseBusy(f"{statement} waits for a lock"), 1.0)
    outage.reached(4.5)
    outage.lost(DatabaseBusy("page waits for a lock"), 4.5 + 2 * REPEAT_WINDOW)

    assert caplog.messages == [
        "The outbox table is unavailable, retrying: page waits for a lock",
        "The outbox table recovered after 3.5 s",
        "The outbox table is unavailable, retrying: page waits for a lock",
    ]


def of_one_process(count: int) -> list[Availability]:
    """Connections that share the log of their outages."""
    outage_log = OutageLog()
    return [Availability(outage_log=outage_log) for _ in range(count)]


def test_connections_that_meet_the_same_outage_say_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    reads, settles, probes = of_one_process(3)
    reads.lost(unavailable(), 10.0)
    settles.lost(unavailable(), 11.0)
    settles.lost(DatabaseUnavailable("too many clients"), 12.0)
    reads.reached(14.0)
    settles.reached(15.0)
    probes.lost(unavailable(), 20.0)
    probes.reached(22.5)

    assert caplog.messages == [
        "The outbox table is unavailable, retrying: no answer",
        "The outbox table is unavailable, retrying: too many clients",
        "The outbox table recovered after 4.0 s",
        "The outbox table is unavailable, retrying: no answer",
        "The outbox table recovered after 2.5 s",
    ]


def test_a_connection_that_is_used_later_says_nothing_new(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    reads, settles = of_one_process(2)
    reads.lost(unavailable(), 10.0)
    reads.reached(10.1)
    settles.lost(unavailable(), 10.5)
    settles.reached(10.6)

    assert len(caplog.messages) == 2


def test_an_outage_just_behind_another_one_is_said_if_it_lasts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    reads, settles = of_one_process(2)
    settles.lost(unavailable(), 10.0)
    reads.lost(unavailable(), 10.0)
    settles.reached(10.1)
    for second in range(11, 20):
        reads.lost(unavailable(), second)
    reads.reached(20.0)

    assert caplog.messages == [
        "The outbox table is unavailable, retrying: no answer",
        "The outbox table recovered after 0.1 s",
        "The outbox table is unavailable, retrying: no answer",
        "The outbox table recovered after 10.0 s",
    ]


def test_a_connection_that_still_fails_says_when_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    reads, settles = of_one_process(2)
    reads.lost(unavailable(), 10.0)
    settles.lost(DatabaseBusy("purge waits for a lock"), 10.0)
    reads.reached(12.0)
    settles.lost(DatabaseBusy("purge waits for a lock"), 13.0)
    settles.reached(16.0)

    assert caplog.messages == [
        "The outbox table is unavailable, retrying: no answer",
        "The outbox table is unavailable, retrying: purge waits for a lock",
        "The outbox table recovered after 2.0 s",
        "The outbox table recovered after 6.0 s",
    ]


def test_each_cause_of_an_outage_is_logged_once_and_tells_locks_apart(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outage = Availability("The archive")
    causes = (
        DatabaseUnavailable("refused"),
        DatabaseUnavailable("refused"),
        DatabaseUnavailable("too many clients"),
        DatabaseBusy("page waits"),
        DatabaseBusy("purge waits"),
    )
    for cause in causes:
        outage.lost(cause, 1.0)

    logged = [
        (record.getMessage().partition(": ")[2], record.__dict__["action"])
        for record in caplog.records
    ]
    assert logged == [
        ("refused", "database_lost"),
        ("too many clients", "database_lost"),
        ("page waits", "database_locked"),
    ]
    assert "The archive is unavailable" in caplog.text


class LockedOutbox(InMemoryOutbox):
    def ping(self) -> None:
        raise DatabaseBusy


def test_a_process_stands_for_election_while_the_table_is_locked() -> None:
    assert _Probe(LockedOutbox(), OutboxSettings(), lambda _: None)()


def test_which_clusters_rows_these_are_cannot_be_told_behind_a_lock() -> None:
    probe = _Probe(LockedOutbox(), OutboxSettings(CLUSTERS_COUNT=2), lambda _: None)
    with pytest.raises(DatabaseBusy):
        probe()
