"""The pace at which a leader looks after what is staged."""

from __future__ import annotations

import pytest

from django_outbox.exceptions import (
    DatabaseBusy,
    DatabaseError,
    DatabaseUnavailable,
)
from django_outbox.message.record import ExpiredSeries, StagingDeadlines
from django_outbox.relay.releaser import Releaser

DAY = 86_400.0
NOTHING = StagingDeadlines(due=DAY, overdue=DAY, purgeable_at=DAY, is_expiring=False)


class Tables:
    """Staged tables that say what the test wants, and note what is asked."""

    def __init__(self, agenda: StagingDeadlines | None = NOTHING) -> None:
        self.answer = agenda
        self.expired: list[ExpiredSeries] = []
        self.asked: list[str] = []
        self.is_away = False
        self.now = 100.0
        self.takes = 0.0

    def agenda(self) -> StagingDeadlines | None:
        if self.is_away:
            raise DatabaseUnavailable
        self.asked.append("agenda")
        self.now += self.takes
        return self.answer

    def release(self, *, limit: int) -> int:
        self.asked.append("release")
        return limit

    def expire(self, *, limit: int) -> int:
        self.asked.append("expire")
        return 1

    def clear(self, *, limit: int) -> ExpiredSeries | None:
        self.asked.append("clear")
        return self.expired.pop() if self.expired else None

    def forget(self, *, limit: int) -> int:
        self.asked.append("forget")
        return 1

    def close(self) -> None:
        self.asked.append("close")


def releaser(tables: Tables, told: list[object] | None = None) -> Releaser:
    told = [] if told is None else told
    return Releaser(
        tables,
        interval=0.1,
        on_expired=lambda leader_id, series: told.append((leader_id, series)),
        clock=lambda: tables.now,
    )


def waits_after_step(tables: Tables) -> float:
    made = releaser(tables)
    assert made.wait(tables.now) == 0.0
    made.step("L")
    return made.wait(tables.now)


def test_an_empty_table_costs_one_question_a_second() -> None:
    tables = Tables()
    assert waits_after_step(tables) == pytest.approx(1.0)
    assert tables.asked == ["agenda"]


@pytest.mark.parametrize(
    ("due", "wait"), [(0.4, 0.4), (0.01, 0.1), (0.0, 0.1), (5.0, 1.0)]
)
def test_it_wakes_when_the_next_message_is_due(due: float, wait: float) -> None:
    assert waits_after_step(Tables(NOTHING._replace(due=due))) == pytest.approx(wait)


@pytest.mark.parametrize(
    ("agenda", "asked"),
    [
        (NOTHING._replace(due=0.0), ["release"]),
        (NOTHING._replace(overdue=0.0), ["expire", "clear"]),
        (NOTHING._replace(is_expiring=True), ["clear"]),
        (NOTHING._replace(purgeable_at=0.0), ["forget"]),
    ],
)
def test_it_does_what_is_due_and_looks_again_soon(
    agenda: StagingDeadlines, asked: list[str]
) -> None:
    tables = Tables(agenda)
    assert waits_after_step(tables) == pytest.approx(0.1)
    assert tables.asked == ["agenda", *asked]


def test_large_rows_are_moved_in_smaller_chunks() -> None:
    tables = Tables(NOTHING._replace(due=0.0))
    limits: list[int] = []

    def release(*, limit: int) -> int:
        limits.append(limit)
        if limit > 300 and len(limits) < 4:
            raise DatabaseUnavailable
        return limit

    tables.release = release  # type: ignore[method-assign]
    made = releaser(tables)
    for _ in range(6):
        made.step("L")
        tables.now += 10.0
    assert limits == [1000, 500, 250, 300, 350, 400]


def test_what_cannot_be_done_keeps_nothing_else_from_being_done() -> None:
    """A series that the parked table refuses slows no delayed message down."""
    tables = Tables(NOTHING._replace(due=0.0, overdue=0.0, purgeable_at=0.0))
    limits: list[int] = []

    def release(*, limit: int) -> int:
        limits.append(limit)
        return limit

    def clear(*, limit: int) -> ExpiredSeries | None:
        raise DatabaseError("permission denied")

    tables.release = release  # type: ignore[method-assign]
    tables.clear = clear  # type: ignore[method-assign]
    made = releaser(tables)
    for _ in range(3):
        made.step("L")
        # As after every failure.
        assert made.wait(tables.now) > 0
        tables.now += 10.0
    assert limits == [1000] * 3
    assert tables.asked == ["agenda", "expire", "forget"] * 3


def test_a_lock_says_nothing_of_the_size_of_rows() -> None:
    tables = Tables(NOTHING._replace(due=0.0))
    limits: list[int] = []

    def release(*, limit: int) -> int:
        limits.append(limit)
        if len(limits) < 4:
            raise DatabaseBusy
        return limit

    tables.release = release  # type: ignore[method-assign]
    made = releaser(tables)
    for _ in range(5):
        made.step("L")
        tables.now += 10.0
    assert limits == [1000] * 5


def test_a_long_step_is_followed_by_a_longer_rest() -> None:
    """What is in flight is settled on the same thread."""
    tables = Tables(NOTHING._replace(due=0.0))
    tables.takes = 0.5
    assert waits_after_step(tables) == pytest.approx(2.0)


def test_an_expired_series_is_told_once_its_messages_are_gone() -> None:
    tables = Tables(NOTHING._replace(overdue=0.0))
    told: list[object] = []
    made = releaser(tables, told)
    made.step("L")
    assert told == []
    series = ExpiredSeries("order-17", 3, "park")
    tables.expired.append(series)
    made.step("L")
    assert told == [("L", series)]


def test_an_outbox_without_the_tables_is_hardly_ever_asked() -> None:
    tables = Tables(None)
    assert waits_after_step(tables) == pytest.approx(60.0)
    assert tables.asked == ["agenda"]


def test_without_an_adapter_no_step_is_ever_due() -> None:
    made = Releaser(None, interval=0.1, on_expired=print, clock=lambda: 0.0)
    assert made.wait(1e9) == float("inf")
    made.close()


def test_a_process_that_does_not_lead_asks_for_nothing() -> None:
    tables = Tables()
    made = releaser(tables)
    made.skip(tables.now)
    assert made.wait(tables.now) == pytest.approx(1.0)
    made.close()
    assert tables.asked == ["close"]


def test_a_table_out_of_reach_is_tried_again() -> None:
    tables = Tables()
    tables.is_away = True
    made = releaser(tables)
    made.step("L")
    assert 0.0 < made.wait(tables.now) <= 1.0
    tables.is_away = False
    made.step("L")
    assert tables.asked == ["agenda"]
