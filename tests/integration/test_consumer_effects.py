"""One message into the database, with its offset beside its effects."""

from __future__ import annotations

import sys
from collections.abc import (
    AsyncGenerator,
    Callable,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from io import StringIO
from threading import Event
from typing import Any
from unittest.mock import MagicMock

import pytest
from django.db import DatabaseError, connection, connections, transaction

from django_outbox import ConsumedMessage, ConsumingError, Message
from django_outbox.consuming.effects import TransactionalHandler, _Passed
from django_outbox.consuming.handlers import Group, Subscription
from django_outbox.consuming.outages import is_service_unavailable
from django_outbox.consuming.runner import StartOffsets, consume
from django_outbox.consuming.working import EffectsWorker
from django_outbox.exceptions import (
    ClaimHeld,
    ErrorSwallowed,
    KafkaUnavailable,
    OffsetsLost,
    StaleOffset,
)
from django_outbox.message.incoming import BEGINNING, PartitionState, TopicPartition
from django_outbox.message.middleware import Handle, Middleware
from django_outbox.models import ConsumerOffset, ProcessedMessage
from tests.testapp.models import Effect
from tests.unit.consuming import (
    FakeDeadLetters,
    FakeSource,
    Watch,
    context_of,
    group_of,
)

pytestmark = pytest.mark.django_db(transaction=True)


def note(message: ConsumedMessage) -> None:
    Effect.objects.create(text=str(message.offset))


class Partitions:
    """What Kafka would say of partitions."""

    def __init__(self) -> None:
        self.states: dict[TopicPartition, PartitionState] = {}
        self.is_away = False

    def look(
        self, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, PartitionState]:
        if self.is_away:
            raise KafkaUnavailable
        return {at: self.states[at] for at in partitions if at in self.states}


def effects_of(
    handle: Callable[[ConsumedMessage], Any] = note,
    *,
    keeps_offsets: bool = True,
    key: Callable[[ConsumedMessage], str] | None = None,
    idle_timeout: float = 60.0,
    partitions: Partitions | None = None,
    middleware: Sequence[Middleware] = (),
) -> TransactionalHandler:
    subscription = Subscription(
        topics=("orders",), group="billing", handle=handle, name="note", key=key
    )
    group = Group("billing", (subscription,))
    return TransactionalHandler(
        group,
        alias="default",
        keeps_offsets=keeps_offsets,
        partitions=partitions or Partitions(),
        idle_timeout=idle_timeout,
        middleware=middleware,
    )


def at(offset: int, message_id: str = "") -> ConsumedMessage:
    headers = (("outbox-message-id", message_id.encode()),) if message_id else ()
    return ConsumedMessage(topic="orders", offset=offset, headers=headers)


def stored() -> list[int]:
    return list(ConsumerOffset.objects.values_list("next_offset", flat=True))


def done() -> list[str]:
    return list(Effect.objects.order_by("id").values_list("text", flat=True))


def test_the_offset_moves_with_the_effects() -> None:
    effects = effects_of()
    assert effects.apply(at(4))
    assert effects.apply(at(7))
    assert stored() == [8]
    assert effects.start_offsets([("orders", 0), ("orders", 1)]) == {("orders", 0): 8}


def test_an_offset_rolls_back_with_the_effects() -> None:
    def fail(message: ConsumedMessage) -> None:
        note(message)
        raise DatabaseError

    with pytest.raises(DatabaseError):
        effects_of(fail).apply(at(4))
    assert stored() == []
    assert done() == []
    assert not ProcessedMessage.objects.exists()


def yields(message: ConsumedMessage) -> Generator[ConsumedMessage, None, None]:
    note(message)
    yield message


async def ayields(message: ConsumedMessage) -> AsyncGenerator[ConsumedMessage, None]:
    yield message


class Promise:
    def __await__(self) -> Iterator[None]:
        yield


@pytest.mark.parametrize(
    "handle", [yields, ayields, lambda _: Promise(), lambda m: map(note, [m])]
)
def test_a_handler_that_was_not_run_is_not_done(handle: Any) -> None:
    with pytest.raises(ConsumingError, match="transforms=True"):
        effects_of(handle).apply(at(4))
    assert stored() == []
    assert not ProcessedMessage.objects.exists()


SENT_BY_NOBODY = Message("t", key="k", value="v")


@pytest.mark.parametrize(
    "returned", [SENT_BY_NOBODY, [SENT_BY_NOBODY], (1, SENT_BY_NOBODY)]
)
def test_a_handler_whose_messages_nobody_sends_is_not_done(returned: Any) -> None:
    with pytest.raises(ConsumingError, match="returned messages, which nothing sends"):
        effects_of(lambda _: returned).apply(at(4))
    assert stored() == []


@pytest.mark.parametrize(
    "returned", [7, "text", [1], {"a": 1}, None, MagicMock(), StringIO("x")]
)
def test_what_else_a_handler_returns_is_ignored(returned: Any) -> None:
    assert effects_of(lambda _: returned).apply(at(4))


@pytest.mark.parametrize("batch", [1, 3])
def test_messages_share_a_connection(batch: int) -> None:
    """Although CONN_MAX_AGE is 0, which is one connection for each request."""
    backends: list[int] = []

    def handle(message: ConsumedMessage) -> None:
        with connections["default"].cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            backends.append(cursor.fetchone()[0])
            if len(backends) == 4:
                cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    assert connections["default"].settings_dict["CONN_MAX_AGE"] == 0
    source = FakeSource()
    worker = EffectsWorker(
        context_of(group_of(handle, transforms=False, batch=batch), source, Watch()),
        effects=effects_of(handle),
        offsets=source,
        dead_letters=FakeDeadLetters(),
    )
    worker.work([at(offset) for offset in range(6)])
    assert len(set(backends[:4])) == 1
    assert backends[-1] != backends[0], "one that has failed is used again"
    assert stored() == [6]


@pytest.mark.parametrize("batch", [1, 3])
def test_an_error_behind_the_commit_is_no_failure_of_the_handler(
    batch: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The effects are there, and a second attempt would find the claim."""
    called: list[int] = []

    def handle(message: ConsumedMessage) -> None:
        def call() -> None:
            called.append(message.offset)
            if message.offset == 1:
                raise LookupError("no such cache")

        transaction.on_commit(call)

    source, watch, dead_letters = FakeSource(), Watch(), FakeDeadLetters()
    group = group_of(handle, transforms=False, batch=batch)
    context = context_of(group, source, watch, attempts=1)
    worker = EffectsWorker(
        context,
        effects=effects_of(handle),
        offsets=source,
        dead_letters=dead_letters,
    )

    worker.work([at(0), at(1), at(2)])

    assert called == [0, 1, 2]
    assert context.progress.processed == 3
    assert context.progress.repeats == context.progress.failures == 0
    assert dead_letters.sent == []
    assert "no such cache" in caplog.text


@pytest.mark.parametrize("age", [0, 600])
def test_an_idle_consumer_keeps_a_connection_as_long_as_a_site_does(
    age: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, source = connections["default"], FakeSource()
    connection.close()
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", age)
    source.to_come = [at(1), at(2)]
    effects = effects_of(keeps_offsets=False)
    context = context_of(group_of(note, transforms=False), source, Watch())
    monkeypatch.setattr(context.progress, "tick", lambda _: False)
    worker = EffectsWorker(
        context, effects=effects, offsets=source, dead_letters=FakeDeadLetters()
    )
    start_offsets = StartOffsets(effects, retry=context.retry, stop=context.stop)
    consume(
        source,
        worker,
        context.progress,
        start_offsets=start_offsets,
        stop=context.stop,
        until_end=True,
    )

    assert (connection.connection is None) == (age == 0)
    assert done() == ["1", "2"]
    connection.close()


def test_a_batch_commits_together() -> None:
    effects = effects_of()
    assert effects.apply_all([at(4, "a"), at(5, "b"), at(6, "a")]) == [
        True,
        True,
        False,
    ]
    assert stored() == [7]
    assert done() == ["4", "5"]


def test_a_batch_rolls_back_together() -> None:
    def fail_at_5(message: ConsumedMessage) -> None:
        note(message)
        if message.offset == 5:
            raise DatabaseError

    effects = effects_of(fail_at_5)
    with pytest.raises(DatabaseError):
        effects.apply_all([at(4), at(5), at(6)])
    assert stored() == []
    assert done() == []
    assert not ProcessedMessage.objects.exists()


class Careless(Middleware):
    """Catches an error of the database when the handler has run."""

    def consume(self, message: ConsumedMessage, handle: Handle) -> None:
        handle(message)
        with suppress(DatabaseError), connection.cursor() as cursor:
            cursor.execute("SELECT 1 FROM absent")


def test_a_batch_in_which_an_error_was_caught_fails() -> None:
    """Its commit would be a rollback that nobody notices."""
    effects = effects_of(middleware=[Careless()])
    with pytest.raises(ErrorSwallowed):
        effects.apply_all([at(4), at(5)])
    assert stored() == []
    assert [effects.apply(at(4)), effects.apply(at(5))] == [True, True]
    assert stored() == [6]
    assert done() == ["4", "5"]


def test_a_handler_that_ends_the_process_has_failed() -> None:
    def leave(message: ConsumedMessage) -> None:
        note(message)
        sys.exit(0)

    with pytest.raises(ConsumingError, match=r"note raised SystemExit\(0\)"):
        effects_of(leave).apply(at(4))
    assert stored() == []
    assert done() == []


def test_a_batch_of_who_has_lost_the_partition_has_no_effects() -> None:
    effects = effects_of()
    effects.skip(at(9))
    with pytest.raises(_Passed):
        effects.apply_all([at(10), at(4)])
    assert stored() == [10]
    assert done() == []


def test_a_batch_of_a_slow_handler_ends_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_outbox.consuming.effects.MAX_BATCH_TIME", 0.0)
    effects = effects_of()
    assert effects.apply_all([at(4), at(5)]) == [True]
    assert stored() == [5]
    assert done() == ["4"]


def test_who_has_lost_the_partition_is_refused() -> None:
    """And leaves no claim behind, under which the message would be dropped."""
    effects = effects_of()
    effects.skip(at(9))
    assert not effects.apply(at(4))
    assert stored() == [10]
    assert done() == []
    assert not ProcessedMessage.objects.exists()


@pytest.mark.parametrize("restored", [6, None])
def test_a_database_that_has_gone_back_is_noticed(restored: int | None) -> None:
    """What it has lost would never be read again."""
    effects = effects_of(partitions=partitions_with("", 0, 20))
    effects.start_offsets([PLACE])
    effects.apply_all([at(5), at(6), at(7)])
    ConsumerOffset.objects.all().delete()
    if restored is not None:
        ConsumerOffset.objects.all().advance("billing", *PLACE, restored - 1)
    with pytest.raises(OffsetsLost, match="was at offset 8 of orders/0"):
        effects.apply(at(8))
    with pytest.raises(OffsetsLost):
        effects.skip(at(8))
    with pytest.raises(OffsetsLost):
        effects.settle({PLACE: 9})
    assert stored() == ([] if restored is None else [restored])
    assert done() == ["5", "6", "7"]
    # As after an assignment.
    ProcessedMessage.objects.all().delete()
    effects.start_offsets([PLACE])
    assert effects.apply(at(restored or 0))


def test_a_message_that_was_sent_twice_is_known_at_another_offset() -> None:
    effects = effects_of()
    assert effects.apply(at(4, "a"))
    assert not effects.apply(at(5, "a"))
    assert done() == ["4"]
    assert stored() == [6]


def test_without_stored_offsets_the_claim_alone_counts() -> None:
    effects = effects_of(keeps_offsets=False)
    assert effects.apply(at(9, "a"))
    assert not effects.apply(at(9, "a"))
    assert effects.apply(at(4, "b"))
    assert stored() == []
    assert effects.start_offsets([("orders", 0)]) == {}


def test_the_key_may_be_the_handlers_own() -> None:
    effects = effects_of(key=lambda _: "the same")
    assert effects.apply(at(1))
    assert not effects.apply(at(2))


def test_a_rewound_group_reads_again_and_does_nothing_twice() -> None:
    effects = effects_of()
    effects.apply(at(4, "a"))
    effects.rewind({("orders", 0): BEGINNING})
    assert stored() == [0]
    assert not effects.apply(at(4, "a"))
    assert effects.apply(at(5, "b"))
    assert done() == ["4", "5"]


def test_a_group_that_is_rewound_to_an_offset_goes_on_there() -> None:
    effects = effects_of(partitions=partitions_with("one", 0, 8))
    effects.apply(at(7))
    effects.rewind({PLACE: 3, ("orders", 1): 5})
    assert stored() == [3]
    assert effects.start_offsets([PLACE, ("orders", 1)]) == {PLACE: 3}
    assert effects.apply(at(3))
    assert stored() == [4]


def test_other_groups_have_offsets_of_their_own() -> None:
    ConsumerOffset.objects.all().advance("search", "orders", 0, 100)
    assert effects_of().apply(at(4))
    assert sorted(stored()) == [5, 101]


PLACE = ("orders", 0)


def partitions_with(topic_id: str, low: int, high: int) -> Partitions:
    partitions = Partitions()
    partitions.states[PLACE] = PartitionState(topic_id, low, high)
    return partitions


def test_a_topic_that_was_created_again_is_refused_though_it_is_longer_now() -> None:
    partitions = partitions_with("one", 0, 8)
    effects = effects_of(partitions=partitions)
    effects.start_offsets([PLACE])
    effects.apply(at(7))
    assert effects_of(partitions=partitions).start_offsets([PLACE]) == {PLACE: 8}
    later = effects_of(partitions=partitions_with("another", 0, 100))
    with pytest.raises(StaleOffset, match="created again since"):
        later.start_offsets([PLACE])
    later.rewind({PLACE: BEGINNING})
    assert later.start_offsets([PLACE]) == {PLACE: BEGINNING}
    assert later.apply(at(0))
    assert effects_of(partitions=partitions).start_offsets([("orders", 1)]) == {}


def test_a_topic_that_is_created_again_while_it_is_read_is_refused() -> None:
    """Its messages would count as done by another process."""
    partitions = partitions_with("one", 0, 8)
    effects = effects_of(partitions=partitions)
    effects.start_offsets([PLACE])
    effects.apply(at(7))
    partitions.states[PLACE] = PartitionState("another", 0, 10)
    with pytest.raises(StaleOffset, match="rewind billing orders"):
        effects.apply(at(0))
    assert done() == ["7"]


def test_who_has_lost_the_partition_is_refused_though_kafka_is_away() -> None:
    partitions = partitions_with("one", 0, 10)
    effects = effects_of(partitions=partitions)
    effects.skip(at(9))
    assert not effects.apply(at(4))
    partitions.is_away = True
    assert not effects.apply(at(5))


def test_the_end_of_a_partition_is_stored_behind_marks_of_transactions() -> None:
    effects = effects_of(partitions=partitions_with("one", 0, 6))
    effects.start_offsets([PLACE])
    effects.apply(at(4))
    effects.settle({PLACE: 6, ("orders", 1): 0})
    assert stored() == [6]
    effects.settle({PLACE: 5})
    assert stored() == [6]
    # Kafka has deleted the message and the mark.
    later = effects_of(partitions=partitions_with("one", 6, 6))
    assert later.start_offsets([PLACE]) == {PLACE: 6}


@pytest.mark.parametrize("is_skipped", [False, True])
def test_a_time_out_of_the_role_is_no_fault_of_the_message(is_skipped: bool) -> None:
    """Another process holds its claim and the offset."""
    is_held, may_go_on = Event(), Event()

    def hold(message: ConsumedMessage) -> None:
        is_held.set()
        assert may_go_on.wait(30)

    def work() -> None:
        try:
            effects_of(hold).apply(at(4, "a"))
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool, connection.cursor() as cursor:
        job = pool.submit(work)
        assert is_held.wait(30)
        cursor.execute("SET lock_timeout = '100ms'")
        try:
            second = effects_of()
            with pytest.raises(ClaimHeld, match="lock timeout") as refused:
                (second.skip if is_skipped else second.apply)(at(4, "a"))
        finally:
            cursor.execute("RESET lock_timeout")
            may_go_on.set()
        job.result(30)
    assert is_service_unavailable(refused.value)


def test_a_frozen_process_holds_its_successor_up_for_a_while_only() -> None:
    is_frozen, may_go_on = Event(), Event()

    def freeze(message: ConsumedMessage) -> None:
        note(message)
        is_frozen.set()
        assert may_go_on.wait(30)

    def work() -> None:
        try:
            effects_of(freeze, idle_timeout=0.3).apply(at(4, "a"))
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(work)
        assert is_frozen.wait(30)
        assert effects_of().apply(at(4, "a"))
        may_go_on.set()
        with pytest.raises(DatabaseError):
            job.result(30)
    assert done() == ["4"]
