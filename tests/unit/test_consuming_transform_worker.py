"""Handlers that only transform: one transaction, its outcome, its failures."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError

from django_outbox import ConsumedMessage, ConsumingError, Message
from django_outbox.consuming import handlers, transforming
from django_outbox.consuming.handlers import Group, find_group
from django_outbox.consuming.output import Output
from django_outbox.consuming.transforming import TransformWorker
from django_outbox.contrib.retry_topics import retried
from django_outbox.events import DeadLettered
from django_outbox.exceptions import DeliveryFailed, KafkaUnavailable, RecordPoisoned
from django_outbox.message.incoming import OutgoingMessage
from django_outbox.settings.options import OutboxSettings

from .consuming import (
    FakeSource,
    FakeTransactions,
    Watch,
    context_of,
    group_of,
    messages,
)


def shout(message: ConsumedMessage) -> Message:
    return Message("loud", key="k", value=message.text().upper())


class Transformation:
    """A worker and all that it works with."""

    def __init__(
        self,
        handle: Callable[[ConsumedMessage], Any] = shout,
        *,
        group: Group | None = None,
    ) -> None:
        self.source = FakeSource()
        self.watch = Watch()
        self.transactions = FakeTransactions(self.source)
        group = group or group_of(handle, transforms=True)
        self.context = context_of(group, self.source, self.watch)
        self.worker = TransformWorker(
            self.context,
            output=Output(OutboxSettings()),
            transactions=self.transactions,
            tokens=self.source,
        )

    def values(self) -> list[list[Any]]:
        return [[letter.value for letter in sent] for sent in self.transactions.sent]


def test_output_and_offsets_are_one_transaction() -> None:
    it = Transformation()
    it.worker.work(messages("a", "b"))
    assert it.values() == [["A", "B"]]
    assert it.source.next_offsets == {("orders", 0): 2}


def test_an_input_may_have_no_output_or_several() -> None:
    def split(message: ConsumedMessage) -> Any:
        return (Message("t", key="k", value=word) for word in message.text().split())

    it = Transformation(split)
    it.worker.work(messages("", "a b"))
    assert it.values() == [["a", "b"]]
    nothing = Transformation(lambda _: None)
    nothing.worker.work(messages("a"))
    assert nothing.source.next_offsets == {("orders", 0): 1}


def test_a_stop_lets_out_what_is_done() -> None:
    it = Transformation()

    def stop_at_b(message: ConsumedMessage) -> Message:
        if message.text() == "b":
            it.context.stop.set()
        return shout(message)

    it.context = context_of(group_of(stop_at_b, transforms=True), it.source, it.watch)
    it.worker = TransformWorker(
        it.context,
        output=Output(OutboxSettings()),
        transactions=it.transactions,
        tokens=it.source,
    )
    it.worker.work(messages("a", "b", "c"))
    assert it.values() == [["A", "B"]]


def test_the_group_is_served_between_slow_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A round of hundreds must not outlast max.poll.interval.ms."""
    monkeypatch.setattr(transforming, "MAX_BATCH_TIME", 0.0)
    it = Transformation()
    it.worker.work(messages("a", "b", "c"))
    assert it.values() == [["A"], ["B"], ["C"]]
    assert it.source.served == 3
    assert it.watch.kinds() == ["consumer_read"] * 3


def test_an_outage_of_a_database_is_no_attempt() -> None:
    """A middleware may read keys there, with `transforms=True` too."""
    failures = [OperationalError("away")] * 6

    def ask(message: ConsumedMessage) -> Message:
        if failures:
            raise failures.pop()
        return shout(message)

    it = Transformation(ask)
    it.worker.work(messages("a", "b"))
    assert it.values() == [["A", "B"]]
    assert not failures
    assert it.source.waits == [0.1, 0.2, *[0.3] * 4]


def test_the_same_input_gives_the_same_message_ids() -> None:
    """An input that was sent twice is known further on."""

    def ids() -> list[Any]:
        it = Transformation()
        it.worker.work(messages("a", "b"))
        (sent,) = it.transactions.sent
        return [dict(letter.headers)["outbox-message-id"] for letter in sent]

    first, second = ids(), ids()
    assert first == second
    assert len({uuid.UUID(text) for text in first}) == 2


def test_headers_of_the_output_are_the_handlers_then_ours() -> None:
    it = Transformation(
        lambda _: Message("t", key="k", value=None, headers=[("a", "1"), ("a", "2")])
    )
    it.worker.work(messages("a"))
    ((letter,),) = it.transactions.sent
    names = [name for name, _value in letter.headers]
    assert names == [
        *("a", "a"),
        *("outbox-message-id", "outbox-source", "outbox-created-at"),
    ]
    assert dict(letter.headers)["outbox-source"] == "billing"


@pytest.mark.parametrize(
    "wrong", ["text", {"a": 1}, 7, [Message("t", key="k", value=None), 7]]
)
def test_other_output_than_messages_is_refused(wrong: Any) -> None:
    group = group_of(lambda _: wrong, transforms=True)
    with pytest.raises((ConsumingError, TypeError), match="Message"):
        Output(OutboxSettings()).messages(group.of("orders"), *messages("a"))


def test_what_precedes_a_failing_message_goes_out_first() -> None:
    tries: list[str] = []

    def fail(message: ConsumedMessage) -> Message:
        if message.text() == "b" and len(tries) < 2:
            tries.append("b")
            raise LookupError
        return shout(message)

    it = Transformation(fail)
    it.worker.work(messages("a", "b", "c"))
    assert it.values() == [["A"], ["B", "C"]]
    assert it.source.next_offsets == {("orders", 0): 3}


def test_a_dead_letter_goes_out_in_the_transaction_of_its_offset() -> None:
    def fail(message: ConsumedMessage) -> Message:
        if message.text() == "b":
            raise LookupError
        return shout(message)

    it = Transformation(fail)
    it.worker.work(messages("a", "b", "c"))
    assert it.values() == [["A"], [b"b", "C"]]
    dead_letter = it.transactions.sent[1][0]
    assert dead_letter.topic == "orders.dlt"
    assert {
        ("outbox-dlt-error", "LookupError"),
        ("outbox-dlt-attempts", "3"),
    } <= {*dead_letter.headers}
    (event,) = [e for e in it.watch.events if isinstance(e, DeadLettered)]
    assert (event.offset, event.attempts, event.error) == (1, 3, "LookupError")
    assert it.source.waits == [0.1, 0.2]


def test_a_retry_goes_out_in_the_transaction_of_its_offset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Later its output has the ids that it would have had at once."""
    monkeypatch.setattr(handlers, "_subscriptions", [])

    def fail_at_first(message: ConsumedMessage) -> Message:
        if message.topic == "orders":
            raise LookupError
        return shout(message)

    retried("orders", group="billing", delays=[timedelta(minutes=1)], transforms=True)(
        fail_at_first
    )
    it = Transformation(group=find_group("billing"))
    it.worker.work(messages("a"))
    ((sent,),) = it.transactions.sent
    assert (sent.topic, sent.value) == ("orders.billing.retry-1", b"a")
    assert it.source.next_offsets == {("orders", 0): 1}
    assert "dead_lettered" not in it.watch.kinds()
    headers = [(n, v.encode() if isinstance(v, str) else v) for n, v in sent.headers]
    retry = ConsumedMessage(topic=sent.topic, value=b"a", headers=tuple(headers))
    it.worker.work([retry])
    at_once = Transformation()
    at_once.worker.work(messages("a"))
    late, early = it.transactions.sent[-1][0], at_once.transactions.sent[0][0]
    assert late.value == early.value == "A"
    ids = [dict(m.headers)["outbox-message-id"] for m in (late, early)]
    assert ids[0] == ids[1]


def test_a_smaller_dead_letter_goes_where_a_whole_one_is_refused() -> None:
    def fail(message: ConsumedMessage) -> Message:
        if message.text() == "b":
            raise LookupError
        return shout(message)

    def refuse(letter: OutgoingMessage) -> Exception | None:
        is_whole = letter.value == b"b"
        return RecordPoisoned("no", code="MSG_SIZE_TOO_LARGE") if is_whole else None

    it = Transformation(fail)
    it.transactions.refuses = refuse
    it.worker.work(messages("a", "b", "c"))
    assert it.values() == [["A"], [b""], ["C"]]
    assert it.watch.kinds().count("dead_lettered") == 1
    assert it.source.waits == [0.1, 0.2]


def test_the_smallest_dead_letter_waits_until_it_is_accepted() -> None:
    refusals = [RecordPoisoned("no", code="MSG_SIZE_TOO_LARGE")] * 4

    def fail(message: ConsumedMessage) -> Message:
        raise LookupError

    it = Transformation(fail)
    it.transactions.refuses = lambda _: refusals.pop() if refusals else None
    it.worker.work(messages("a"))
    assert it.values() == [[b""]]
    assert it.source.waits == [0.1, 0.2, 0.1, 0.2]


@pytest.mark.parametrize(
    ("moment", "transactions"), [("before", [["A"]]), ("after", [["A"]])]
)
def test_an_unknown_outcome_is_asked_for(moment: str, transactions: Any) -> None:
    """Neither sent twice nor lost, whichever of the two it was."""
    it = Transformation()
    it.transactions.failures = [(moment, KafkaUnavailable())]
    it.worker.work(messages("a"))
    assert it.values() == transactions
    assert it.transactions.renewals == 1


def test_an_outcome_is_asked_for_until_kafka_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    it = Transformation()
    it.transactions.failures = [("after", KafkaUnavailable())]
    renew, outages = it.transactions.renew, [KafkaUnavailable()] * 3

    def renew_later() -> None:
        if outages:
            raise outages.pop()
        renew()

    monkeypatch.setattr(it.transactions, "renew", renew_later)
    it.worker.work(messages("a"))
    assert it.values() == [["A"]]
    assert it.source.waits == [0.1, 0.2, 0.3, 0.3]
    assert it.watch.kinds() == ["consumer_read"]


def test_a_stop_leaves_an_unknown_outcome_to_the_next_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It reads the offset of the group, which the transaction wrote or did not."""
    it = Transformation()
    it.transactions.failures = [("before", KafkaUnavailable())]

    def stop_and_fail() -> None:
        it.context.stop.set()
        raise KafkaUnavailable

    monkeypatch.setattr(it.transactions, "renew", stop_and_fail)
    it.worker.work(messages("a"))
    assert it.values() == []
    assert it.watch.kinds() == [], "done is what was committed"


def test_output_that_cannot_be_sent_is_told_from_its_neighbours() -> None:
    def refuse(letter: OutgoingMessage) -> Exception | None:
        is_bad = letter.value == "BAD"
        return RecordPoisoned("too large", code="MSG_SIZE") if is_bad else None

    it = Transformation()
    it.transactions.refuses = refuse
    it.worker.work(messages("a", "bad", "c"))
    sent = [value for values in it.values() for value in values]
    assert sent == ["A", b"bad", "C"]
    assert it.watch.kinds().count("dead_lettered") == 1


def test_output_that_is_too_much_for_its_timeout_is_sent_in_smaller_transactions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A slow link delivers few records before they time out."""
    it = Transformation()
    send, tries = it.transactions.send, list[int]()

    def send_slowly(output: Any, offsets: Any, token: str) -> None:
        tries.append(len(output))
        if len(output) > 2:
            if len(tries) > 20:
                it.context.stop.set()
            raise DeliveryFailed("timed out")
        send(output, offsets, token)

    monkeypatch.setattr(it.transactions, "send", send_slowly)
    it.worker.work(messages(*"abcdefgh"))
    assert it.values() == [["A", "B"], ["C", "D"], ["E", "F"], ["G", "H"]]
    assert tries[:5] == [8, 4, 2, 4, 2]


def test_a_partition_that_goes_takes_its_messages_along() -> None:
    it = Transformation()
    it.transactions.failures = [("before", KafkaUnavailable())]
    it.source.on_hold = lambda: setattr(it.source, "is_ours", False)
    it.worker.work(messages("a"))
    assert it.values() == []
    assert it.watch.kinds() == [], "done is what was committed"


def test_what_a_predecessor_left_open_is_ended_at_the_start() -> None:
    it = Transformation()
    it.worker.start()
    assert it.transactions.renewals == 1
