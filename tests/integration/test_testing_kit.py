"""What a project's tests do with their outbox, in each kind of Django's tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase
from pytest_django import Settings

from django_outbox import (
    ConfigurationError,
    ConsumedMessage,
    Message,
    Middleware,
    consumer,
    open_series,
    record_parked,
    stash,
    stash_delayed,
    stash_many,
)
from django_outbox.consuming import handlers
from django_outbox.events import Event, LeaderAcquired, LeaderRevoked, RecordParked
from django_outbox.exceptions import RecordPoisoned
from django_outbox.message.limits import header_pairs
from django_outbox.message.middleware import Handle
from django_outbox.message.record import Record
from django_outbox.models import OutboxRecord, Pause, ProcessedMessage
from django_outbox.postgres import outbox_identity
from django_outbox.signals import (
    leader_acquired,
    leader_fenced,
    leader_refreshed,
    leader_revoked,
)
from django_outbox.testing import OutboxFixture, OutboxTestCase, lead, run_consumer
from tests.testapp.models import Effect

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _own_receivers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the receivers that a test connects, also where an error holds them."""
    leaders = (leader_acquired, leader_refreshed, leader_revoked, leader_fenced)
    for signal in (record_parked, *leaders):
        monkeypatch.setattr(signal, "receivers", [])


def stash_letters(letters: str, *, topic: str = "orders") -> None:
    """Stash messages whose keys are the letters, and whose values their positions."""
    with transaction.atomic():
        for number, letter in enumerate(letters):
            stash(topic, key=letter, value={"number": number})


def arrived(messages: list[ConsumedMessage]) -> list[tuple[str, int]]:
    return [(message.key_text(), message.json()["number"]) for message in messages]


# What was stashed.


def test_messages_are_in_order_and_decoded(outbox: OutboxFixture) -> None:
    first = stash("orders", key="1", value={"a": [1]}, headers={"h": "x"}, partition=4)
    stash("audit", key="2", value="no JSON")
    stash("audit", key="2", value=b"\xff")
    stash("audit", key="2", value=None)

    message, *others = outbox.messages
    assert (message.topic, message.key, message.value) == ("orders", "1", {"a": [1]})
    assert message.headers == (("h", "x"),)
    assert message.header("h") == "x"
    assert message.header("missing") is None
    assert message.partition == 4
    assert message.message_id == first
    assert [other.value for other in others] == ["no JSON", b"\xff", None]
    assert not any(other.is_staged for other in outbox.messages)


def test_staged_messages_come_last(outbox: OutboxFixture) -> None:
    stash_delayed("orders", key="later", value="", not_before=timedelta(hours=1))
    with open_series("s") as series:
        series.stash("orders", key="series", value="")
    stash("orders", key="now", value="")

    found = [(message.key, message.is_staged) for message in outbox.messages]
    assert found == [("now", False), ("later", True), ("series", True)]
    outbox.assert_stashed("orders", key="later")
    assert [message.key_text() for message in outbox.drain()] == ["now"]


def test_assert_stashed_returns_what_matches(outbox: OutboxFixture) -> None:
    stash("orders", key="1", value={"status": "placed"}, headers={"a": "1", "b": "2"})
    stash("orders", key="1", value={"status": "paid"})
    stash("audit", key="1", value={"status": "placed"})

    (only,) = outbox.assert_stashed("orders", key="1", value__status="placed")
    assert only.value == {"status": "placed"}
    outbox.assert_stashed("orders", headers={"b": "2"}, times=1)
    outbox.assert_stashed("orders", value={"status": "paid"}, times=1)
    assert len(outbox.assert_stashed("orders", times=2)) == 2
    outbox.assert_stashed("returns", times=0)


@pytest.mark.parametrize(
    "wanted",
    [
        {"topic": "returns"},
        {"key": "2"},
        {"value__status": "paid"},
        {"value": {}},
        {"headers": {"a": "2"}},
        {"headers": {"c": "1"}},
        {"times": 2},
        {"times": 0},
    ],
)
def test_what_was_not_stashed_fails(
    outbox: OutboxFixture, wanted: dict[str, Any]
) -> None:
    stash("orders", key="1", value={"status": "placed"}, headers={"a": "1"})
    with pytest.raises(AssertionError):
        outbox.assert_stashed(**({"topic": "orders"} | wanted))


def test_a_failure_lists_what_was_stashed(outbox: OutboxFixture) -> None:
    stash("orders", key="1", value={"status": "placed"}, headers={"a": "ü"})
    stash("audit", key="2", value=b"\xff", partition=3)
    stash_delayed("audit", key="3", value=None, not_before=timedelta(hours=1))

    with pytest.raises(AssertionError) as caught:
        outbox.assert_stashed("orders", key="1", value__status="paid", times=2)
    assert str(caught.value) == (
        "0 messages to 'orders' with key='1', value__status='paid' were stashed, "
        "expected 2. Stashed:\n"
        """  1. orders key='1' value={"status":"placed"} headers={"a":"ü"}\n"""
        r"  2. audit key='2' value=b'\xff' partition=3" + "\n"
        "  3. audit key='3' value=null (staged)"
    )


def test_a_failure_says_when_there_was_nothing(outbox: OutboxFixture) -> None:
    with pytest.raises(AssertionError) as caught:
        outbox.assert_stashed("orders")
    assert str(caught.value) == (
        "0 messages to 'orders' were stashed, expected at least 1. Nothing was stashed."
    )


def test_nothing_stashed(outbox: OutboxFixture) -> None:
    outbox.assert_nothing_stashed()
    stash("orders", key="1", value="x")
    outbox.assert_nothing_stashed("audit")
    with pytest.raises(AssertionError, match=r"1\. orders key='1' value=\"x\""):
        outbox.assert_nothing_stashed()
    with pytest.raises(AssertionError):
        outbox.assert_nothing_stashed("orders")


def test_a_text_that_reads_as_no_number_is_listed(outbox: OutboxFixture) -> None:
    OutboxRecord.objects.create(kafka_topic="orders", kafka_key="1", kafka_value="NaN")
    with pytest.raises(AssertionError, match=r"1\. orders key='1' value=nan"):
        outbox.assert_nothing_stashed()


def test_the_text_null_is_no_tombstone(outbox: OutboxFixture) -> None:
    stash("orders", key="1", value="null")
    with pytest.raises(AssertionError, match=r"1\. orders key='1' value=\"null\""):
        outbox.assert_stashed("orders", value=None)
    stash("orders", key="2", value=None)
    assert outbox.assert_stashed("orders", value=None, times=1)[0].key == "2"


def test_a_misspelt_argument_is_no_silent_match(outbox: OutboxFixture) -> None:
    stash("orders", key="1", value={"status": "placed"})
    with pytest.raises(TypeError, match="'status'"):
        outbox.assert_stashed("orders", status="placed")


@pytest.mark.django_db(databases=["default", "other"])
def test_another_database_is_chosen_by_its_alias(outbox: OutboxFixture) -> None:
    other = OutboxFixture("other")
    with transaction.atomic("other"):
        stash("orders", key="1", value="x", using="other")

    outbox.assert_nothing_stashed()
    other.assert_stashed("orders")
    assert outbox.drain() == []
    assert len(other.drain()) == 1
    other.assert_nothing_stashed()


# What is sent.


def test_drain_sends_in_order_and_empties_the_table(outbox: OutboxFixture) -> None:
    stash_letters("aab")
    outbox.kafka.create_topic("orders", partitions=5)

    sent = outbox.drain()

    assert arrived(sent) == [("a", 0), ("a", 1), ("b", 2)]
    assert [message.offset for message in sent[:2]] == [0, 1]
    assert outbox.messages == []
    assert outbox.drain() == []
    stash_letters("c")
    (last,) = outbox.drain()
    assert outbox.kafka.messages == [*sent, last]


def test_drain_needs_no_migrations(outbox: OutboxFixture) -> None:
    """Tables that come from the models lack that of the identity."""
    outbox_identity._outbox_in.cache_clear()
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE outbox_identity RENAME TO elsewhere")
    stash_letters("a")

    assert arrived(outbox.drain()) == [("a", 0)]


def test_a_message_has_what_consumers_see(outbox: OutboxFixture) -> None:
    message_id = stash("orders", key="1", value="x", headers={"h": "y"})

    (message,) = outbox.drain()

    assert message.message_id == str(message_id)
    assert message.source
    assert message.source.startswith("outbox-leader-")
    assert message.created_at is not None
    names = [name for name, _ in message.headers]
    ours = ["message-id", "id", "source", "created-at"]
    assert names == ["h", *(f"outbox-{name}" for name in ours)]


@pytest.mark.parametrize("is_aware", [True, False])
@pytest.mark.parametrize("hour", [0, 1])
def test_a_drained_message_has_the_creation_time_of_its_row(
    outbox: OutboxFixture, settings: Settings, hour: int, is_aware: bool
) -> None:
    """Also in the hour that a clock shows twice, where Django's times are naive."""
    settings.TIME_ZONE, settings.USE_TZ = "Europe/Berlin", is_aware
    stash("orders", key="1", value={})
    with connection.cursor() as cursor:
        moment = f"2026-10-25 {hour:02d}:30:00.123457+00"
        cursor.execute("UPDATE outbox SET create_time = %s", [moment])
    (message,) = outbox.drain()
    assert message.created_at == datetime(2026, 10, 25, hour, 30, 0, 123457, tzinfo=UTC)


def test_a_row_without_a_finite_time_is_sent_as_by_the_harvester(
    outbox: OutboxFixture,
) -> None:
    stash("orders", key="1", value={})
    with connection.cursor() as cursor:
        cursor.execute("UPDATE outbox SET create_time = 'infinity'")
    (message,) = outbox.drain()
    assert dict(message.headers)["outbox-created-at"] == b"0"


def test_several_pages_are_sent(outbox: OutboxFixture, settings: Settings) -> None:
    settings.DJANGO_OUTBOX = settings.DJANGO_OUTBOX | {"MARK_BATCH": 10}
    stash_many(
        Message("orders", key=str(n % 3), value={"number": n}) for n in range(45)
    )

    assert [number for _, number in arrived(outbox.drain())] == [*range(45)]


MODES = [
    {},
    {"MAX_IN_FLIGHT_PER_KEY": 1},
    {"MARKS": "table"},
    {"DELIVERY": "exactly-once"},
]


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_a_failed_key_waits_and_keeps_its_order(
    outbox: OutboxFixture, settings: Settings, mode: dict[str, Any]
) -> None:
    settings.DJANGO_OUTBOX = settings.DJANGO_OUTBOX | mode
    stash_letters("aabba")
    fault = outbox.fail_delivery("orders", key="a", times=2)

    sent = arrived(outbox.drain())

    assert [number for key, number in sent if key == "a"] == [0, 1, 4]
    assert [number for key, number in sent if key == "b"] == [2, 3]
    assert sent[-1] == ("a", 4)
    assert fault.count == 2
    outbox.assert_nothing_stashed()


def test_an_outage_leaves_the_rows_with_their_attempts(outbox: OutboxFixture) -> None:
    stash_letters("ab")
    outage = outbox.fail_delivery("orders", key="a", times=None)

    assert arrived(outbox.drain(seconds=1.0)) == [("b", 1)]
    (message,) = outbox.messages
    assert 1 < message.attempts == outage.count
    assert message.last_error == "_MSG_TIMED_OUT: A fault of the test."
    outage.stop()
    assert arrived(outbox.drain()) == [("a", 0)]


def test_a_poison_record_is_parked_and_its_key_goes_on(
    outbox: OutboxFixture, settings: Settings
) -> None:
    settings.DJANGO_OUTBOX = settings.DJANGO_OUTBOX | {"POISON_POLICY": "park"}
    stash_letters("aab")
    error = RecordPoisoned("too large", code="MSG_SIZE_TOO_LARGE")
    outbox.fail_delivery("orders", key="a", times=3, error=error)
    events: list[RecordParked] = []

    def note(event: RecordParked, **_: object) -> None:
        events.append(event)

    record_parked.connect(note)
    sent = arrived(outbox.drain())

    assert sorted(sent) == [("a", 1), ("b", 2)]
    (parked,) = outbox.parked
    assert (parked.value, parked.attempts) == ({"number": 0}, 3)
    assert parked.last_error == "MSG_SIZE_TOO_LARGE: too large"
    (event,) = events
    assert (event.topic, event.attempts) == ("orders", 3)
    assert event.message_id == str(parked.message_id)


def test_an_error_in_a_receiver_of_record_parked_is_raised(
    outbox: OutboxFixture, settings: Settings
) -> None:
    settings.DJANGO_OUTBOX = settings.DJANGO_OUTBOX | {"POISON_POLICY": "park"}
    stash_letters("a")
    outbox.fail_delivery("orders", times=None, error=RecordPoisoned("no"))

    def fail(**_: object) -> None:
        raise LookupError("the receiver's")

    record_parked.connect(fail)
    with pytest.raises(LookupError, match="the receiver's"):
        outbox.drain()


def test_a_poison_record_blocks_its_key_by_default(outbox: OutboxFixture) -> None:
    stash_letters("aab")
    outbox.fail_delivery("orders", key="a", times=None, error=RecordPoisoned("no"))

    assert arrived(outbox.drain()) == [("b", 2)]
    assert [message.value["number"] for message in outbox.messages] == [0, 1]
    assert outbox.parked == []


@pytest.mark.parametrize(
    ("topic", "key", "sent"),
    [("", None, []), ("orders", None, []), ("orders", "a", [("b", 1)])],
)
def test_what_is_paused_stays(
    outbox: OutboxFixture, topic: str, key: str | None, sent: list[tuple[str, int]]
) -> None:
    pause = Pause.objects.create(kafka_topic=topic, kafka_key=key)
    stash_letters("ab")

    assert arrived(outbox.drain()) == sent
    pause.delete()
    assert len(outbox.drain()) == 2 - len(sent)


def test_a_row_of_plain_sql_that_may_not_be_sent_is_poison(
    outbox: OutboxFixture, settings: Settings
) -> None:
    settings.DJANGO_OUTBOX = settings.DJANGO_OUTBOX | {"POISON_POLICY": "park"}
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO outbox (kafka_topic, kafka_key, kafka_header_keys,"
            " kafka_header_values) VALUES ('orders', 'a', '{outbox-id}', '{1}')"
        )
    stash_letters("a")

    assert arrived(outbox.drain()) == [("a", 0)]
    assert outbox.parked[0].last_error.startswith("RESERVED_HEADER")


# Middleware.


class Stamped(Middleware):
    """Leaves a header at each place that a message passes."""

    def stash(self, message: Message) -> Message:
        message.headers = [*header_pairs(message.headers or {}), ("stash", "1")]
        return message

    def produce(self, record: Record) -> Record:
        return record._replace(
            header_keys=[*record.header_keys, "produce"],
            header_values=[*record.header_values, "1"],
        )

    def consume(self, message: ConsumedMessage, handle: Handle) -> None:
        handle(replace(message, headers=(*message.headers, ("consume", b"1"))))


@pytest.mark.parametrize("transforms", [False, True])
def test_middleware_runs_as_in_production(
    outbox: OutboxFixture,
    settings: Settings,
    declared: Callable[..., Any],
    *,
    transforms: bool,
) -> None:
    names = [f"{__name__}.Stamped"]
    settings.DJANGO_OUTBOX = {**settings.DJANGO_OUTBOX, "MIDDLEWARE": names}
    found: list[str] = []

    def look(message: ConsumedMessage) -> None:
        found.extend(name for name, _ in message.headers)

    declared("orders", group="g", transforms=transforms)(look)
    with transaction.atomic():
        stash("orders", key="a", value={})
    outbox.assert_stashed("orders", headers={"stash": "1"})
    (message,) = outbox.drain()

    assert run_consumer(look, message).ran
    assert [name for name in found if not name.startswith("outbox-")] == [
        "stash",
        "produce",
        "consume",
    ]


# Handlers.


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Declares handlers that are forgotten after the test."""
    monkeypatch.setattr(handlers, "_subscriptions", [])
    return consumer


ORDER = ConsumedMessage(
    topic="orders",
    key=b"1",
    value=b"{}",
    headers=(("outbox-message-id", b"m-1"),),
)


def note(message: ConsumedMessage) -> None:
    """Leave an effect and a message."""
    Effect.objects.create(text=message.key_text())
    stash("effects", key=message.key_text(), value=None)


async def anote(message: ConsumedMessage) -> None:
    """Leave an effect."""
    await Effect.objects.acreate(text=message.key_text())


def test_a_handler_runs_once(
    outbox: OutboxFixture, declared: Callable[..., Any]
) -> None:
    declared("orders", group="g")(note)

    first, second = run_consumer(note, ORDER), run_consumer(note, ORDER)

    assert first.ran
    assert not first.is_repeat
    assert second.is_repeat
    assert first.is_committed
    assert second.is_offset_committed
    assert Effect.objects.count() == 1
    outbox.assert_stashed("effects", key="1", times=1)
    assert ProcessedMessage.objects.get().key == "m-1"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("offsets", ["kafka", "database"])
def test_a_handler_runs_once_outside_of_a_transaction(
    declared: Callable[..., Any], settings: Settings, offsets: str
) -> None:
    settings.DJANGO_OUTBOX = settings.DJANGO_OUTBOX | {"OFFSETS": offsets}
    declared("orders", group="g")(note)
    other = ConsumedMessage(topic="orders", key=b"2", value=b"{}")

    ran = [run_consumer(note, message).ran for message in (ORDER, ORDER, other)]
    assert ran == [True, False, True]
    assert Effect.objects.count() == 2


@pytest.mark.django_db(transaction=True)
def test_an_async_handler_runs(declared: Callable[..., Any]) -> None:
    declared("orders", group="g")(anote)
    assert run_consumer(anote, ORDER).ran
    assert run_consumer(anote, ORDER).is_repeat
    assert Effect.objects.count() == 1


def test_a_consumer_that_dies_before_its_commit_leaves_nothing(
    outbox: OutboxFixture, declared: Callable[..., Any]
) -> None:
    declared("orders", group="g")(note)

    died = run_consumer(note, ORDER, dies="before-commit")

    assert died.ran
    assert not died.is_committed
    assert not died.is_offset_committed
    assert not Effect.objects.exists()
    outbox.assert_nothing_stashed()
    assert run_consumer(note, ORDER).ran
    assert run_consumer(note, ORDER, dies="before-commit").is_repeat


def test_a_consumer_that_dies_after_its_commit_skips_the_repeat(
    declared: Callable[..., Any],
) -> None:
    declared("orders", group="g")(note)

    died = run_consumer(note, ORDER, dies="after-commit")

    assert died.ran
    assert died.is_committed
    assert not died.is_offset_committed
    assert run_consumer(note, ORDER).is_repeat
    assert Effect.objects.count() == 1


@pytest.mark.parametrize("dies", [None, "before-commit", "after-commit"])
def test_the_error_of_a_handler_is_raised_and_its_effects_roll_back(
    declared: Callable[..., Any], dies: Any
) -> None:
    def fail(message: ConsumedMessage) -> None:
        note(message)
        raise LookupError("the handler's")

    declared("orders", group="g")(fail)
    with pytest.raises(LookupError, match="the handler's"):
        run_consumer(fail, ORDER, dies=dies)
    assert not Effect.objects.exists()
    assert not ProcessedMessage.objects.exists()


def test_a_handler_that_transforms_returns_its_output(
    declared: Callable[..., Any],
) -> None:
    def double(message: ConsumedMessage) -> list[Message]:
        return [Message("doubles", key=message.key_text(), value=n) for n in (1, 2)]

    declared("orders", group="g", transforms=True)(double)

    once, twice = run_consumer(double, ORDER), run_consumer(double, ORDER)
    assert [(made.topic, made.key, made.value) for made in once.output] == [
        ("doubles", "1", "1"),
        ("doubles", "1", "2"),
    ]
    ids = [dict(made.headers)["outbox-message-id"] for made in once.output]
    assert ids == [dict(made.headers)["outbox-message-id"] for made in twice.output]
    died = run_consumer(double, ORDER, dies="before-commit")
    assert died.output == ()
    assert not died.is_offset_committed
    assert run_consumer(double, ORDER, dies="after-commit").is_offset_committed


def test_a_handler_of_several_groups_needs_the_name_of_one(
    declared: Callable[..., Any],
) -> None:
    declared("orders", group="one")(note)
    declared("orders", group="two")(note)

    with pytest.raises(ConfigurationError, match="choose one: one, two"):
        run_consumer(note, ORDER)
    assert run_consumer(note, ORDER, group="two").ran
    assert run_consumer(note, ORDER, group="one").ran
    assert ProcessedMessage.objects.count() == 2


@pytest.mark.parametrize(("topic", "group"), [("returns", None), ("orders", "h")])
def test_a_handler_must_be_declared(
    declared: Callable[..., Any], topic: str, group: str | None
) -> None:
    declared("orders", group="g")(note)
    with pytest.raises(ConfigurationError, match=r"note is not declared.*@consumer"):
        run_consumer(note, ConsumedMessage(topic=topic), group=group)


# Leaders.


@pytest.fixture
def seen() -> list[Event]:
    """The events that receivers have got."""
    events: list[Event] = []

    def receive(sender: object, event: Event, **_: object) -> None:
        assert sender is not None
        events.append(event)

    for signal in (leader_acquired, leader_refreshed, leader_revoked, leader_fenced):
        signal.connect(receive, weak=False)
    return events


def test_a_leader_is_revoked_at_the_end_of_the_block(seen: list[Event]) -> None:
    with lead(name="web-1") as leader:
        assert leader.is_leading
        assert [event.kind for event in seen] == ["leader_acquired"]
    assert [event.kind for event in seen] == ["leader_acquired", "leader_revoked"]
    assert {event.leader_id for event in seen} == {leader.leader_id}
    assert {event.name for event in seen} == {"web-1"}
    assert not leader.is_leading


def test_a_fenced_leader_is_not_revoked_too(seen: list[Event]) -> None:
    with lead() as leader:
        leader.fence("frozen")
        leader.fence()
    assert [event.kind for event in seen] == ["leader_acquired", "leader_fenced"]
    assert getattr(seen[-1], "reason") == "frozen"  # noqa: B009  # of one kind only


def test_a_refresh_changes_the_leader_id(seen: list[Event]) -> None:
    leader = lead()
    first = leader.leader_id
    leader.refresh()
    leader.revoke()

    _, refreshed, revoked = seen
    assert getattr(refreshed, "previous_leader_id") == first  # noqa: B009
    assert refreshed.leader_id == revoked.leader_id == leader.leader_id != first


def test_the_error_of_a_receiver_is_raised_when_all_have_run(
    seen: list[Event],
) -> None:
    def fail(**_: object) -> None:
        raise LookupError("the receiver's")

    def last(event: Event, **_: object) -> None:
        seen.append(event)

    leader_acquired.connect(fail)
    leader_acquired.connect(last)
    with pytest.raises(LookupError, match="the receiver's"):
        lead()
    # Those who have begun to lead have ended it.
    assert [type(event) for event in seen] == [LeaderAcquired] * 2 + [LeaderRevoked]


# Django's own test cases. The order of two tests does not matter: each is alone.


class InATestCase(OutboxTestCase, TestCase):
    @classmethod
    def setUpTestData(cls) -> None:
        with transaction.atomic():
            stash("orders", key="0", value={"number": -1})

    def test_it_sees_uncommitted_messages(self) -> None:
        stash_letters("a")
        self.outbox.assert_stashed("orders", key="a", value__number=0)
        assert arrived(self.outbox.drain()) == [("0", -1), ("a", 0)]
        self.outbox.assert_nothing_stashed()

    def test_it_sees_nothing_of_another_test(self) -> None:
        assert self.outbox.kafka.messages == []
        self.outbox.assert_stashed("orders", times=1)
        stash_letters("b")
        assert arrived(self.outbox.drain()) == [("0", -1), ("b", 0)]


class InATransactionTestCase(OutboxTestCase, TransactionTestCase):
    def test_it_sees_committed_messages(self) -> None:
        stash_letters("aa")
        self.outbox.fail_delivery("orders")
        assert arrived(self.outbox.drain()) == [("a", 0), ("a", 1)]
        self.outbox.assert_nothing_stashed()

    def test_it_sees_nothing_of_another_test(self) -> None:
        assert self.outbox.kafka.messages == []
        self.outbox.assert_nothing_stashed()
        stash_letters("b")
        assert arrived(self.outbox.drain()) == [("b", 0)]


class InAnotherDatabase(OutboxTestCase, TestCase):
    databases = {"default", "other"}
    outbox_database = "other"

    def test_it_sees_that_database(self) -> None:
        stash_letters("a")
        self.outbox.assert_nothing_stashed()
        with transaction.atomic("other"):
            stash("orders", key="b", value=None, using="other")
        self.outbox.assert_stashed("orders", key="b", value=None)
