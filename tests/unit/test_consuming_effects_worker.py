"""Handlers with effects: tried again, set aside, waited for; on plain objects."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError

from django_outbox import ConsumedMessage
from django_outbox.consuming import handlers, working
from django_outbox.consuming.handlers import Group, find_group
from django_outbox.consuming.runner import StartOffsets, beginnings, consume
from django_outbox.consuming.working import EffectsWorker
from django_outbox.contrib.retry_topics import retried
from django_outbox.events import ConsumerRead, DeadLettered
from django_outbox.exceptions import (
    ClaimHeld,
    KafkaUnavailable,
    RecordPoisoned,
    StaleOffset,
    TableMissing,
)
from django_outbox.message.retry import RetryPolicy

from .consuming import (
    FakeDeadLetters,
    FakeSource,
    Watch,
    context_of,
    group_of,
    messages,
)


class FakeEffects:
    """Runs a function in the place of a transaction."""

    def __init__(self, run: Callable[[ConsumedMessage], Any]) -> None:
        self.run = run
        self.seen: set[str] = set()
        self.skipped: list[int] = []
        self.batches: list[int] = []
        """How many messages each transaction of several was asked for."""
        self.batch = 100
        """How many of them it does."""

    def apply_all(self, messages: Sequence[ConsumedMessage]) -> list[bool]:
        seen, self.batches = set(self.seen), [*self.batches, len(messages)]
        try:
            return [self.apply(message) for message in messages[: self.batch]]
        except Exception:
            self.seen = seen
            raise

    def apply(self, message: ConsumedMessage) -> bool:
        if message.text() in self.seen:
            return False
        self.run(message)
        self.seen.add(message.text())
        return True

    def skip(self, message: ConsumedMessage) -> None:
        self.skipped.append(message.offset)


class Consumption:
    """A worker and all that it works with."""

    def __init__(
        self,
        run: Callable[[ConsumedMessage], Any],
        *,
        batch: int = 1,
        group: Group | None = None,
    ) -> None:
        self.source = FakeSource()
        self.watch = Watch()
        self.dead_letters = FakeDeadLetters()
        self.effects = FakeEffects(run)
        group = group or group_of(run, transforms=False, batch=batch)
        self.context = context_of(group, self.source, self.watch)
        self.worker = EffectsWorker(
            self.context,
            effects=self.effects,  # type: ignore[arg-type]
            offsets=self.source,
            dead_letters=self.dead_letters,
        )

    def read(self) -> ConsumerRead:
        self.context.progress.read(self.source)
        last = self.watch.events[-1]
        assert isinstance(last, ConsumerRead)
        return last


@pytest.fixture(autouse=True)
def _no_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(working, "close_unusable_connections", lambda: None)
    away = lambda error: isinstance(error, OperationalError)  # noqa: E731
    monkeypatch.setattr(working, "is_service_unavailable", away)


class Failing:
    """A handler that fails so many times."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.done: list[str] = []

    def __call__(self, message: ConsumedMessage) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.done.append(message.text())


def test_what_is_done_may_be_committed() -> None:
    handler = Failing()
    it = Consumption(handler)
    it.worker.work(messages("a", "b"))
    assert handler.done == ["a", "b"]
    assert it.source.next_offsets == {("orders", 0): 2}


def test_the_messages_of_a_batch_share_a_transaction() -> None:
    it = Consumption(Failing(), batch=5)
    assert it.worker.limit == 5
    it.worker.work(messages("a", "b", "a"))
    assert it.effects.batches == [3]
    read = it.read()
    assert (read.processed, read.repeats) == (2, 1)
    assert it.source.next_offsets == {("orders", 0): 3}


def test_a_transaction_that_ends_early_leaves_the_rest_to_the_next() -> None:
    handler = Failing()
    it = Consumption(handler, batch=5)
    it.effects.batch = 2
    it.worker.work(messages("a", "b", "c", "d", "e"))
    assert it.effects.batches == [5, 3]
    assert handler.done == ["a", "b", "c", "d", "e"]
    assert it.source.next_offsets == {("orders", 0): 5}


def test_a_batch_that_fails_is_processed_one_by_one() -> None:
    """And only the attempts of the guilty message count."""
    guilty = [ValueError("c")] * 4

    def fail_at_c(message: ConsumedMessage) -> None:
        if message.text() == "c" and guilty:
            raise guilty.pop()

    it = Consumption(fail_at_c, batch=5)
    it.worker.work(messages("a", "b", "c", "d"))
    assert it.effects.batches == [4]
    assert [letter.topic for letter in it.dead_letters.sent] == ["orders.dlt"]
    assert it.effects.seen == {"a", "b", "d"}
    read = it.read()
    assert (read.processed, read.failed) == (3, 3)
    assert it.source.next_offsets == {("orders", 0): 4}


def test_a_batch_of_a_lost_partition_is_dropped() -> None:
    it = Consumption(Failing(), batch=5)
    it.source.is_ours = False
    it.worker.work(messages("a", "b"))
    assert it.effects.batches == []
    assert it.source.next_offsets == {}


def test_the_group_is_served_between_two_transactions_of_a_batch() -> None:
    """Handlers may be slow, and Kafka takes partitions from a member that is silent."""
    it = Consumption(Failing(), batch=5)
    it.effects.batch = 2
    it.worker.work(messages("a", "b", "c", "d", "e"))
    assert it.source.served == 2
    assert it.watch.kinds() == ["consumer_read"] * 2
    one_by_one = Consumption(Failing(LookupError()), batch=3)
    one_by_one.worker.work(messages("a", "b", "c"))
    assert one_by_one.source.served == 3
    # Not after an attempt that failed: a handler may hang.
    assert one_by_one.watch.kinds() == ["consumer_read"] * 2


def test_the_time_of_each_message_and_each_attempt_is_taken() -> None:
    it = Consumption(Failing(LookupError()))
    it.worker.work(messages("a", "b"))
    assert times_of(it) == 3
    batch = Consumption(Failing(), batch=5)
    batch.worker.work(messages("a", "b", "c"))
    assert times_of(batch) == 3


def times_of(it: Consumption) -> float:
    buckets, seconds = it.context.progress.times.cumulated()
    assert seconds > 0
    return buckets[-1][1]


def test_a_repeat_is_counted_and_passed() -> None:
    it = Consumption(Failing())
    it.worker.work(messages("a", "a"))
    read = it.read()
    assert (read.processed, read.repeats) == (1, 1)
    assert it.source.next_offsets == {("orders", 0): 2}


def test_a_failing_message_is_tried_again_with_growing_pauses() -> None:
    handler = Failing(LookupError(), LookupError())
    it = Consumption(handler)
    it.worker.work(messages("a"))
    assert handler.done == ["a"]
    assert it.source.waits == [0.1, 0.2]
    assert it.dead_letters.sent == []


def test_a_message_whose_attempts_are_spent_is_set_aside() -> None:
    it = Consumption(Failing(*[LookupError("a secret")] * 3))
    it.worker.work(messages("a", "b"))
    (dead_letter,) = it.dead_letters.sent
    assert dead_letter.topic == "orders.dlt"
    assert dead_letter.value == b"a"
    assert ("outbox-dlt-error", "LookupError") in dead_letter.headers
    assert ("outbox-dlt-attempts", "3") in dead_letter.headers
    assert it.effects.skipped == [0]
    assert it.source.next_offsets == {("orders", 0): 2}
    (event,) = [e for e in it.watch.events if isinstance(e, DeadLettered)]
    assert (event.offset, event.attempts, event.error) == (0, 3, "LookupError")


def test_a_message_that_is_retried_later_is_no_dead_letter_yet(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(handlers, "_subscriptions", [])
    handler = Failing(*[LookupError()] * 3)
    it = Consumption(handler, group=retrying(handler))
    with caplog.at_level(logging.INFO, "django_outbox"):
        it.worker.work(messages("a"))
    (sent,) = it.dead_letters.sent
    assert sent.topic == "orders.billing.retry-1"
    assert it.effects.skipped == [0]
    assert it.source.next_offsets == {("orders", 0): 1}
    assert (it.read().failed, it.read().dead_letters) == (1, 0)
    assert "dead_lettered" not in it.watch.kinds()
    assert "waits in orders.billing.retry-1 for its retry" in caplog.text
    it.worker.work([replace(messages("b")[0], topic=sent.topic)])
    assert it.dead_letters.sent[-1].topic == "orders.dlt"
    assert it.read().dead_letters == 1


def test_a_message_that_a_retry_topic_refuses_is_a_dead_letter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In part it could not be handled."""
    monkeypatch.setattr(handlers, "_subscriptions", [])
    handler = Failing(LookupError())
    it = Consumption(handler, group=retrying(handler))
    it.dead_letters.failures = [RecordPoisoned("refused", code="MSG_SIZE_TOO_LARGE")]
    it.worker.work(messages("a"))
    (sent,) = it.dead_letters.sent
    assert (sent.topic, sent.value) == ("orders.dlt", b"")
    assert it.read().dead_letters == 1


def retrying(handler: Failing) -> Group:
    def handle(message: ConsumedMessage) -> None:
        handler(message)

    retried("orders", group="billing", delays=[timedelta(minutes=1)])(handle)
    return find_group("billing")


def test_what_is_away_counts_as_no_attempt() -> None:
    handler = Failing(*[OperationalError("gone")] * 9, LookupError())
    it = Consumption(handler)
    it.worker.work(messages("a"))
    assert handler.done == ["a"]
    assert it.read().failed == 1
    assert it.source.waits == [0.1, 0.2, *[0.3] * 7, 0.1]


def test_a_dead_letter_waits_for_the_broker() -> None:
    it = Consumption(Failing(*[LookupError()] * 3))
    it.dead_letters.failures = [KafkaUnavailable()] * 3
    it.worker.work(messages("a"))
    assert len(it.dead_letters.sent) == 1
    assert it.source.waits == [*(0.1, 0.2), *(0.1, 0.2, 0.3)]
    assert it.source.next_offsets == {("orders", 0): 1}


def test_a_dead_letter_is_sent_once_while_the_database_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    it = Consumption(Failing(*[LookupError()] * 3))
    failures = [OperationalError("gone")] * 3

    def skip(message: ConsumedMessage) -> None:
        if failures:
            raise failures.pop()

    monkeypatch.setattr(it.effects, "skip", skip)
    it.worker.work(messages("a"))
    assert failures == []
    assert it.dead_letters.values() == [b"a"]
    assert it.watch.kinds().count("dead_lettered") == 1
    assert it.source.next_offsets == {("orders", 0): 1}


def test_a_dead_letter_that_is_refused_is_told_and_waits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    it = Consumption(Failing(*[LookupError()] * 3))
    it.dead_letters.failures = [RecordPoisoned("no right", code="TOPIC_EXCEPTION")] * 2
    it.worker.work(messages("a"))
    assert it.dead_letters.values() == [b"a"]
    errors = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert len(errors) == 2
    assert (
        "Cannot send the dead letter of message orders/0 at offset 0"
        in errors[0].getMessage()
    )


@pytest.mark.parametrize(
    "code", ["MSG_SIZE_TOO_LARGE", "INVALID_RECORD", "POLICY_VIOLATION"]
)
def test_a_smaller_dead_letter_goes_where_a_whole_one_is_refused(
    code: str, caplog: pytest.LogCaptureFixture
) -> None:
    it = Consumption(Failing(*[LookupError()] * 3))
    it.dead_letters.failures = [RecordPoisoned("refused", code=code)]
    it.worker.work(messages("a", "b"))
    assert it.dead_letters.values() == [b""]
    assert it.source.next_offsets == {("orders", 0): 2}
    assert it.source.waits == [0.1, 0.2]
    assert "dead letter of message orders/0 at offset 0 was refused" in caplog.text


def test_the_smallest_dead_letter_waits_until_it_is_accepted() -> None:
    it = Consumption(Failing(*[LookupError()] * 3))
    it.dead_letters.failures = [RecordPoisoned("no", code="MSG_SIZE_TOO_LARGE")] * 4
    it.worker.work(messages("a", "b"))
    (dead_letter,) = it.dead_letters.sent
    assert dead_letter.key == b"orders/0/0"
    assert it.source.waits == [0.1, 0.2, 0.1, 0.2]
    assert it.source.next_offsets == {("orders", 0): 2}


def test_a_partition_that_goes_takes_its_message_along() -> None:
    """Whoever has it now tries it again."""
    it = Consumption(Failing(LookupError()))
    it.source.on_hold = lambda: setattr(it.source, "is_ours", False)
    it.worker.work(messages("a"))
    assert it.source.next_offsets == {}
    assert it.dead_letters.sent == []


def test_no_attempt_follows_a_stop() -> None:
    it = Consumption(Failing(LookupError()))
    it.source.on_hold = it.context.stop.set
    it.worker.work(messages("a"))
    assert it.source.next_offsets == {}


def test_the_log_tells_what_the_handler_says_and_shows_no_payload(
    caplog: pytest.LogCaptureFixture,
) -> None:
    it = Consumption(Failing(LookupError("no account 7")))
    message = ConsumedMessage(
        topic="orders",
        key=b"a secret",
        value=b"a secret",
        headers=(("outbox-message-id", b"id-1"), ("other", b"a secret")),
    )
    with caplog.at_level(logging.DEBUG, "django_outbox"):
        it.worker.work([message])
    (record,) = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert record.getMessage() == (
        "Attempt 1 on orders/0 at offset 0 (message id id-1) failed: "
        "LookupError: no account 7"
    )
    shown = logging.Formatter().format(record)
    assert "test_consuming_effects_worker.py" in shown
    assert "raise self.errors.pop(0)" in shown
    assert "a secret" not in shown


def run(it: Consumption, store: OffsetStore, *, until_end: bool = True) -> None:
    consume(
        it.source,
        it.worker,
        it.context.progress,
        start_offsets=start_offsets_of(store),
        stop=it.context.stop,
        until_end=until_end,
    )


def test_the_loop_ends_at_the_end_and_leaves_the_group() -> None:
    it = Consumption(Failing())
    it.source.to_come = messages("a", "b", "c")
    store = OffsetStore()
    run(it, store)
    assert it.read().processed == 3
    assert store.settled == {("orders", 0): 3}
    assert it.source.is_closed
    assert "stopped" in it.watch.kinds()


@pytest.mark.usefixtures("_no_connections")
def test_the_loop_waits_at_the_end_until_it_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    it = Consumption(Failing())
    polls = [messages("a"), [], messages("a", "b")[1:], []]

    def poll(limit: int, timeout: float) -> list[ConsumedMessage]:
        if len(polls) == 1:
            it.context.stop.set()
        return polls.pop(0)

    monkeypatch.setattr(it.source, "poll", poll)
    run(it, OffsetStore(), until_end=False)
    assert it.source.next_offsets == {("orders", 0): 2}
    assert polls == []
    assert it.dead_letters.rests == 4


def test_a_stored_offset_that_would_skip_messages_ends_the_consumer() -> None:
    it = Consumption(Failing(StaleOffset("orders/0")))
    it.source.to_come = messages("a")
    with pytest.raises(StaleOffset):
        run(it, OffsetStore())
    assert it.source.is_closed
    assert it.source.next_offsets == {}


@pytest.mark.usefixtures("_no_connections")
def test_ends_are_stored_when_all_has_been_done() -> None:
    it, store = Consumption(Failing()), OffsetStore()
    it.source.to_come = messages("a", "b")
    run(it, store)
    assert store.settled == {("orders", 0): 2}


@pytest.mark.usefixtures("_no_connections")
@pytest.mark.parametrize("error", [OperationalError(), TableMissing(), ClaimHeld()])
def test_ends_that_cannot_be_stored_end_no_consumer(error: Exception) -> None:
    """A restore drops the table and makes it again."""
    store = OffsetStore(error)
    start_offsets = start_offsets_of(store)
    start_offsets.settle({("orders", 0): 1})
    assert store.settled == {}
    start_offsets.settle({("orders", 0): 2})
    assert store.settled == {("orders", 0): 2}


class OffsetStore:
    """Stored offsets, after as many failures as a test wants."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.rewound: list[tuple[str, int]] = []
        self.settled: dict[tuple[str, int], int] = {}

    def start_offsets(self, partitions: Any) -> dict[tuple[str, int], int]:
        if self.errors:
            raise self.errors.pop(0)
        return {("orders", 0): 7}

    def rewind(self, starts: Any) -> None:
        self.rewound += starts

    def settle(self, ends: Any) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.settled = ends

    def ping(self) -> None:
        """It answers."""


def start_offsets_of(store: OffsetStore, *, rewound: Any = None) -> StartOffsets:
    context = context_of(group_of(print, transforms=False), FakeSource(), Watch())
    return StartOffsets(
        store,
        retry=RetryPolicy(attempts=1, backoff=0.001, backoff_max=0.001),
        rewound=rewound,
        stop=context.stop,
    )


PARTITIONS = [("orders", 0), ("orders", 1)]


@pytest.mark.usefixtures("_no_connections")
def test_partitions_start_where_the_database_says_once_all_answer() -> None:
    store = OffsetStore(OperationalError(), KafkaUnavailable())
    assert start_offsets_of(store)(PARTITIONS) == {("orders", 0): 7}
    assert store.errors == []


@pytest.mark.usefixtures("_no_connections")
def test_a_partition_starts_at_its_beginning_until_a_message_of_it_is_done() -> None:
    """The group knows nothing of a beginning: it has the offset from before."""
    store = OffsetStore()
    start_offsets = start_offsets_of(store, rewound=beginnings)
    assert start_offsets(PARTITIONS[:1]) == {("orders", 0): -2}
    assert start_offsets(PARTITIONS[:1]) == {("orders", 0): -2}
    start_offsets.begun(messages("a"))
    assert start_offsets(PARTITIONS) == {("orders", 0): 7, ("orders", 1): -2}
    assert store.rewound == [("orders", 0), ("orders", 0), ("orders", 1)]


@pytest.fixture
def _no_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    from django_outbox.consuming import runner

    for name in ("close_old_connections", "close_idle_connections"):
        monkeypatch.setattr(runner, name, lambda: None)
