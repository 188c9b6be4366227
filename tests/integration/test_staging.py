"""Series and messages with a date on a real PostgreSQL, as an app writes them."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection, connections, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django import Settings

from django_outbox import (
    InvalidMessage,
    Message,
    NotInTransaction,
    OpenSeries,
    SeriesClosed,
    SeriesError,
    SeriesUnknown,
    adiscard_series,
    aopen_series,
    arelease_series,
    astash,
    astash_delayed,
    discard_series,
    open_series,
    release_series,
    signals,
    stash,
    stash_delayed,
    stash_many,
)
from django_outbox.models import OutboxRecord, Series, StagedRecord
from django_outbox.operations.grants import grants

from .transactions import begun, wait_until_blocked

S = "order-17"


def sent() -> list[str]:
    """Keys in the outbox, in order."""
    rows = OutboxRecord.objects.order_by("id")
    return list(rows.values_list("kafka_key", flat=True))


def staged() -> list[str]:
    """Keys that are staged, in order."""
    rows = StagedRecord.objects.order_by("staged_id")
    return list(rows.values_list("kafka_key", flat=True))


def add(key: str, **options: Any) -> uuid.UUID:
    return open_series(S, **options).stash("t", key=key, value=None)


def add_many(keys: Iterable[str], name: str = S, **options: Any) -> list[uuid.UUID]:
    messages = [Message("t", key=key, value=b"x") for key in keys]
    return open_series(name, **options).stash_many(messages)


class TestOneAfterTheOther:
    """Within one transaction, which is rolled back."""

    pytestmark = pytest.mark.django_db

    def test_a_series_goes_as_a_whole_in_its_order_with_its_message_ids(self) -> None:
        with open_series(S) as series:
            first = series.stash(
                "t", key="b", value={"n": 1}, headers={"h": "1"}, partition=2
            )
        many = series.stash_many(Message("t", key=k, value=b"x") for k in "dac")
        before = stash("t", key="at once", value=None)
        assert (sent(), staged()) == (["at once"], ["b", "d", "a", "c"])
        assert release_series(S) == [first, *many]
        assert (sent(), staged()) == (["at once", "b", "d", "a", "c"], [])
        rows = list(OutboxRecord.objects.order_by("id"))
        assert [row.message_id for row in rows] == [before, first, *many]
        assert (rows[1].kafka_value, rows[1].kafka_partition) == ('{"n":1}', 2)
        assert (rows[1].kafka_header_keys, rows[1].kafka_header_values) == (
            ["h"],
            ["1"],
        )
        assert bytes(rows[2].kafka_value_bytes or b"") == b"x"
        assert Series.objects.get().state == "released"

    def test_a_long_series_keeps_its_order(self) -> None:
        keys = [str(number) for number in range(2500)]
        add_many(keys)
        assert len(release_series(S)) == 2500
        assert sent() == keys

    def test_the_move_is_one_statement(self) -> None:
        add("a")
        with CaptureQueriesContext(connection) as queries:
            release_series(S)
        assert [q["sql"].splitlines()[0] for q in queries] == [
            "-- outbox: look at series",
            "-- outbox: release series",
        ]

    def test_the_expected_number_releases_it(self) -> None:
        add("a", expected=3)
        add("b")
        assert sent() == []
        add("c", expected=3)
        assert (sent(), staged()) == (["a", "b", "c"], [])

    def test_a_batch_can_complete_it(self) -> None:
        add_many("abc", expected=3)
        assert sent() == ["a", "b", "c"]

    def test_the_number_may_be_told_last(self) -> None:
        add("a")
        add("b")
        open_series(S, expected=2)
        assert sent() == ["a", "b"]

    def test_it_can_be_released_before_it_is_complete(self) -> None:
        add("a", expected=3)
        release_series(S)
        assert sent() == ["a"]

    def test_an_empty_series_can_be_released(self) -> None:
        open_series(S)
        assert release_series(S) == []

    def test_a_handle_releases_and_discards_its_series(self) -> None:
        series, other = open_series(S), open_series("other")
        message_id = series.stash("t", key="a", value=None)
        other.stash_many([Message("t", key=key, value=None) for key in "bc"])
        assert series.name == S
        assert series.release(ordered=True) == [message_id]
        assert other.discard() == 2
        assert (sent(), staged()) == (["a"], [])

    def test_leaving_the_block_leaves_the_series_open(self) -> None:
        with pytest.raises(ZeroDivisionError), open_series(S) as series:
            add("a")
            raise ZeroDivisionError
        with series:
            series.stash("t", key="b", value=None)
        assert (sent(), staged()) == ([], ["a", "b"])

    def test_no_message_changes_nothing(self) -> None:
        assert open_series(S, expected=1).stash_many([]) == []
        assert Series.objects.get().state == "open"

    def test_a_discarded_series_is_gone(self) -> None:
        add("a")
        add("b")
        assert discard_series(S) == 2
        assert (sent(), staged()) == ([], [])
        assert Series.objects.get().state == "discarded"

    def test_series_do_not_mix(self) -> None:
        add("a")
        add_many("b", "other")
        release_series(S)
        assert (sent(), staged()) == (["a"], ["b"])

    def test_its_time_counts_from_the_call_that_opens_it(self) -> None:
        add("a", timeout=60)
        first = Series.objects.get()
        add("b", timeout=600)
        again = Series.objects.get()
        assert again.expires_at == first.expires_at
        assert first.expires_at is not None
        assert first.expires_at - first.created_at == timedelta(seconds=60)
        assert first.on_timeout == "park"

    def test_the_settings_give_the_time_out(self, settings: Settings) -> None:
        settings.DJANGO_OUTBOX = {"SERIES_TIMEOUT": 60, "SERIES_ON_TIMEOUT": "discard"}
        add("a")
        add_many("b", "no time-out", timeout=0)
        open_series("opened", timeout=5, on_timeout="park")
        found = {
            name: (end and (end - begin).total_seconds(), action)
            for name, begin, end, action in Series.objects.values_list(
                "name", "created_at", "expires_at", "on_timeout"
            )
        }
        assert found == {
            S: (60, "discard"),
            "no time-out": (None, "discard"),
            "opened": (5, "park"),
        }

    def test_a_date_stages_a_message(self) -> None:
        moment = timezone.now() + timedelta(hours=1)
        stash_delayed("t", key="a", value=None, not_before=moment)
        stash_many([Message("t", key="b", value=None)], not_before=timedelta(hours=2))
        a, b = StagedRecord.objects.order_by("staged_id")
        assert (a.not_before, a.series) == (moment, None)
        assert b.not_before is not None
        assert b.not_before - b.create_time == timedelta(hours=2)
        assert sent() == []

    def test_a_delay_is_as_long_where_the_clocks_change(self) -> None:
        # On any date, one of the two delays crosses exactly one change.
        days = [120, 240]
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL TIME ZONE 'Europe/Berlin'")
            for number in days:
                delay = timedelta(days=number)
                stash_delayed("t", key="a", value=None, not_before=delay)
            cursor.execute(
                "SELECT extract(epoch FROM not_before - create_time)::float8 / 86400"
                " FROM outbox_staged ORDER BY staged_id"
            )
            assert [row[0] for row in cursor.fetchall()] == days

    def test_no_delay_and_the_longest_are_exact(self) -> None:
        delays = [
            timedelta(0),
            timedelta(microseconds=-1),
            timedelta(days=36_499, hours=23, minutes=59, seconds=59, microseconds=1),
        ]
        for delay in delays:
            stash_delayed("t", key="a", value=None, not_before=delay)
        rows = StagedRecord.objects.order_by("staged_id")
        assert [row.not_before - row.create_time for row in rows] == delays  # type: ignore[operator]

    def test_delayed_messages_have_no_order(self) -> None:
        with pytest.raises(InvalidMessage, match="ordered: a delayed message gets its"):
            stash_many([], ordered=True, not_before=timedelta(hours=2))

    def test_an_end_that_nobody_knows_is_refused(self) -> None:
        with pytest.raises(InvalidMessage, match="'drop' must be 'park' or 'discard'"):
            open_series(S, on_timeout="drop")  # type: ignore[arg-type]

    @pytest.mark.parametrize("call", [release_series, discard_series])
    def test_a_series_that_nobody_opened_is_named(self, call: Any) -> None:
        with pytest.raises(SeriesUnknown, match="there is no 'order-17' in the data"):
            call(S)

    @pytest.mark.parametrize(
        ("close", "state"),
        [(release_series, "was released"), (discard_series, "was discarded")],
    )
    def test_a_closed_series_takes_nothing_more(self, close: Any, state: str) -> None:
        add("a")
        close(S)
        again = (lambda: add("b"), lambda: open_series(S), lambda: close(S))
        for call in (*again, lambda: release_series(S), lambda: discard_series(S)):
            with pytest.raises(SeriesClosed, match=f"'order-17' {state} at 20.*late "):
                call()
        assert Series.objects.get().staged == 1

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"expected": 4}, "expected: 4, but the series 'order-17' expects 3 mess"),
            ({"expected": 2}, "expected: 2, but the series 'order-17' expects 3"),
        ],
    )
    def test_another_number_is_refused(
        self, arguments: dict[str, Any], message: str
    ) -> None:
        add("a", expected=3)
        with pytest.raises(SeriesError, match=message):
            add("b", **arguments)
        assert (Series.objects.get().staged, staged()) == (1, ["a"])

    def test_fewer_than_are_there_are_refused(self) -> None:
        add("a")
        add("b")
        with pytest.raises(SeriesError, match=r"1 messages complete .* it has 2 alr"):
            open_series(S, expected=1)
        with pytest.raises(SeriesError, match="it has 2 and would get 2 more"):
            add_many("cd", expected=3)
        add("c")
        assert sent() == ["a", "b", "c"]

    def test_a_message_that_breaks_a_limit_leaves_the_series_as_it_was(self) -> None:
        with pytest.raises(InvalidMessage):
            open_series(S).stash_many(
                [
                    Message("t", key="a", value=None),
                    Message("__t", key="b", value=None),
                ]
            )
        assert (Series.objects.get().staged, staged()) == (0, [])

    def test_the_app_needs_no_more_than_its_grants(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("CREATE ROLE outbox_test_app")
            for statement in grants("outbox", app="outbox_test_app"):
                cursor.execute(statement)
            cursor.execute("SET LOCAL ROLE outbox_test_app")
            add("a", expected=2, timeout=5)
            add("b")
            add_many("c", "other")
            release_series("other", ordered=True)
            open_series("third")
            discard_series("third")
            stash_delayed("t", key="d", value=None, not_before=timedelta(hours=1))
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
            cursor.execute("RESET ROLE")
        assert (sent(), staged()) == (["a", "b", "c"], ["d"])


@pytest.mark.django_db
def test_what_the_howto_shows_works() -> None:
    page = Path(__file__).resolve().parents[2] / "docs/howto/series.md"
    text = page.read_text("utf-8")
    shown: dict[str, Any] = {}
    exec("\n".join(re.findall(r"```python\n(.+?)```", text, re.DOTALL)), shown)  # noqa: S102
    signals.series_expired.disconnect(shown["warn"])
    one, two, three = (SimpleNamespace(pk=number) for number in range(3))
    shown["reserve"](one)
    assert sent() == []
    shown["pay"](one)
    assert sent() == ["0", "0"]
    shown["receive"](two, "a", 2)
    shown["receive"](two, "b", 2)
    assert sent() == ["0", "0", "1", "1"]
    shown["begin"](three)
    shown["reserve"](three)
    shown["cancel"](three)
    shown["remind"](three)
    with connection.cursor() as cursor:
        for statement in re.findall(r"```sql\n(.+?)```", text, re.DOTALL):
            cursor.execute(statement)
    assert (sent(), staged()) == (["0", "0", "1", "1"], ["2", "42"])


@pytest.mark.django_db(transaction=True)
def test_outside_a_transaction_the_call_is_named() -> None:
    for call in (open_series, release_series, discard_series):
        name = call.__name__
        with pytest.raises(NotInTransaction, match=rf"Call {name}\(\) inside"):
            call(S)


@pytest.mark.django_db(transaction=True)
def test_a_savepoint_takes_back_its_part_of_a_series() -> None:
    with transaction.atomic():
        add("a", expected=2)
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            add("lost")
            assert sent() == ["a", "lost"]
            raise ZeroDivisionError
        assert (sent(), staged()) == ([], ["a"])
        add("b")
    assert sent() == ["a", "b"]


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_each_database_has_its_own_series() -> None:
    for alias in ("default", "other"):
        with transaction.atomic(using=alias):
            open_series(S, using=alias).stash("t", key=alias, value=None)
    with transaction.atomic(using="other"):
        assert len(open_series(S, using="other").release()) == 1
    assert (sent(), staged()) == ([], ["default"])
    assert OutboxRecord.objects.using("other").get().kafka_key == "other"


@pytest.mark.django_db(transaction=True)
def test_from_async_code() -> None:
    async def write() -> None:
        block = transaction.atomic()
        await sync_to_async(block.__enter__)()
        with await aopen_series(S) as series:
            await series.astash("t", key="a", value=None)
            await series.astash_many([Message("t", key="b", value=None)])
        assert len(await arelease_series(S)) == 2
        await aopen_series("other")
        assert await adiscard_series("other") == 0
        assert await (await aopen_series("empty")).arelease() == []
        assert await (await aopen_series("no use")).adiscard() == 0
        await astash_delayed("t", key="c", value=None, not_before=timedelta(hours=1))
        await sync_to_async(block.__exit__)(None, None, None)
        with pytest.raises(NotInTransaction):
            await arelease_series(S)
        with pytest.raises(NotInTransaction, match=r"Use `await astash\(...\)`"):
            series.stash("t", key="a", value=None)
        await sync_to_async(connections.close_all)()

    asyncio.run(write())
    assert (sent(), staged()) == (["a", "b"], ["c"])
    assert (astash.__name__, arelease_series.__name__) == ("astash", "arelease_series")
    assert OpenSeries.astash.__qualname__ == "OpenSeries.astash"


@pytest.fixture
def opened(transactional_db: None) -> None:
    """A series with one message, committed."""
    with transaction.atomic():
        add("a")


@pytest.mark.usefixtures("opened")
class TestAtTheSameTime:
    def test_a_release_waits_for_whoever_stages_and_takes_that_along(self) -> None:
        with begun() as stager, begun() as releaser:
            stager.do(add, "b")
            release = releaser.submit(release_series, S)
            wait_until_blocked()
            stager.commit()
            assert len(release.result(15)) == 2
            releaser.commit()
        assert (sent(), staged()) == (["a", "b"], [])

    def test_who_stages_after_a_release_is_refused(self) -> None:
        with begun() as stager, begun() as releaser:
            releaser.do(release_series, S)
            late = stager.submit(add, "b")
            wait_until_blocked()
            releaser.commit()
            with pytest.raises(SeriesClosed):
                late.result(15)
            stager.commit()
        assert (sent(), staged()) == (["a"], [])

    def test_who_stages_after_a_release_that_rolls_back_is_not(self) -> None:
        with begun() as stager, begun() as releaser:
            releaser.do(release_series, S)
            late = stager.submit(add, "b")
            wait_until_blocked()
            releaser.roll_back()
            late.result(15)
            stager.commit()
        assert (sent(), staged()) == ([], ["a", "b"])

    def test_of_a_release_and_a_discard_one_wins(self) -> None:
        with begun() as one, begun() as other:
            one.do(discard_series, S)
            late = other.submit(release_series, S)
            wait_until_blocked()
            one.commit()
            with pytest.raises(SeriesClosed, match="was discarded"):
                late.result(15)
            other.commit()
        assert (sent(), staged()) == ([], [])

    def test_who_comes_second_completes_it(self) -> None:
        """It sees what the first has staged, although that committed meanwhile."""
        with begun() as first, begun() as second:
            first.do(add, "b", expected=3)
            late = second.submit(add, "c", expected=3)
            wait_until_blocked()
            first.commit()
            late.result(15)
            second.commit()
        assert (sent(), staged()) == (["a", "b", "c"], [])

    def test_a_series_that_rolled_back_counts_for_nobody(self) -> None:
        with begun() as first, begun() as second:
            first.do(add_many, "x", "new", expected=1)
            late = second.submit(add_many, "y", "new", expected=2)
            wait_until_blocked()
            first.roll_back()
            late.result(15)
            second.commit()
        assert (sent(), staged()) == ([], ["a", "y"])

    def test_an_ordered_release_waits_for_writers_of_its_keys(self) -> None:
        with begun() as writer, begun() as releaser:
            writer.do(stash, "t", key="a", value="first", ordered=True)
            release = releaser.submit(release_series, S, ordered=True)
            wait_until_blocked()
            writer.commit()
            release.result(15)
            releaser.commit()
        values = OutboxRecord.objects.order_by("id").values_list("kafka_value")
        assert list(values) == [("first",), (None,)]


@pytest.mark.django_db(transaction=True)
def test_many_that_race_to_complete_their_series_complete_each_once() -> None:
    writers, names = 4, [f"series-{number}" for number in range(15)]

    def write(writer: int) -> None:
        try:
            for name in names:
                for step in range(2):
                    with transaction.atomic():
                        key = f"{name}/{writer}/{step}"
                        with open_series(name, expected=8) as series:
                            series.stash("t", key=key, value=name)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(writers) as pool:
        for job in [pool.submit(write, number) for number in range(writers)]:
            job.result(60)
    rows = OutboxRecord.objects.order_by("id").values_list("kafka_value", "kafka_key")
    found = list(rows)
    assert len(found) == len({key for _name, key in found}) == 8 * len(names)
    assert staged() == []
    # Each lies in one piece, and each writer's second message after its first.
    pieces = [name for i, (name, _) in enumerate(found) if found[i - 1][0] != name]
    assert Counter(pieces) == Counter(names)
    for writer in range(writers):
        steps = [key[-1] for _name, key in found if f"/{writer}/" in key]
        assert steps == ["0", "1"] * len(names)
