"""What becomes of the delivery reports of a batch, and of a transaction."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message

from django_outbox.exceptions import DeliveryFailed, LedgerRefused
from django_outbox.kafka import transactions as kafka_transactions
from django_outbox.kafka.delivery_reports import LedgerReport, Reports
from django_outbox.kafka.failures import failure
from django_outbox.kafka.transactions import KafkaTransactions, Turn
from django_outbox.message.record import Record
from django_outbox.relay.batch import Fault
from django_outbox.relay.ledger.ports import Ledger
from django_outbox.settings.options import OutboxSettings

from .samples import record

NO_OFFSET = -1001
"""librdkafka's number for an offset that the broker has not told."""

NONE: AbstractSet[int] = frozenset()

TOO_LARGE = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
PURGED = KafkaError(KafkaError._PURGE_INFLIGHT)


def message(of: Record, offset: int = 7, partition: int = 0) -> Message:
    """Make the message of a record, as the driver gives it with a report."""
    value = of.value.encode() if isinstance(of.value, str) else of.value
    return Message(
        topic=of.topic,
        key=of.key.encode(),
        value=value,
        offset=offset,
        partition=partition,
    )


def faults(reports: Reports, *records: Record) -> list[tuple[int, str]]:
    """Return the ids of records that are not in the log, and why."""
    found = reports.faults(records, lambda error: failure(error, is_alone=False))
    return [(fault.record.id, fault.error.code) for fault in found]


class TestReports:
    def test_reports_are_counted(self) -> None:
        one, two = record(1), record(2, "l")
        reports = Reports(2)

        reports.note(None, message(one))
        assert reports.left == 1
        reports.note(None, message(two, offset=0))

        assert reports.left == 0
        assert not reports.are_refused
        assert faults(reports, one, two) == []

    def test_an_acknowledgement_without_an_offset_is_a_fault(self) -> None:
        one, two = record(1, "k"), record(2, "l")
        reports = Reports(2)
        reports.note(None, message(one))
        reports.note(None, message(two, NO_OFFSET))

        assert reports.left == 0
        assert reports.are_refused
        assert faults(reports, one, two) == [(2, "NO_OFFSET")]

    def test_faults_are_in_the_order_of_the_records(self) -> None:
        records = [record(n, f"k{n}") for n in range(4)]
        reports = Reports(4)
        for number in (3, 0, 2):
            reports.note(TOO_LARGE, message(records[number], NO_OFFSET))
        reports.note(None, message(records[1]))

        codes = [(n, "MSG_SIZE_TOO_LARGE") for n in (0, 2, 3)]
        assert faults(reports, *records) == codes

    @pytest.mark.parametrize(
        "refused",
        [
            record(1, topic="u"),
            record(1, "l"),
            record(1, value="w"),
            record(1)._replace(value=b"\x00\xff"),
            record(1)._replace(value=""),
            record(1)._replace(value=None),
            record(1, "ключ", value="☂"),
        ],
    )
    def test_topic_key_and_value_tell_which_was_refused(self, refused: Record) -> None:
        others = [record(2), record(3, "other", topic="other", value="other")]
        reports = Reports(3)
        reports.note(TOO_LARGE, message(refused, NO_OFFSET))
        for other in others:
            reports.note(None, message(other))

        assert faults(reports, *others, refused) == [(1, "MSG_SIZE_TOO_LARGE")]

    def test_a_text_and_its_bytes_are_the_same_message(self) -> None:
        sent = record(1)._replace(value=b"v")
        reports = Reports(1)
        reports.note(TOO_LARGE, message(record(1, value="v"), NO_OFFSET))

        assert [number for number, _ in faults(reports, sent)] == [1]

    def test_of_equal_messages_the_last_ones_are_refused(self) -> None:
        """Behind a refusal nothing goes out, so those before it are in the log."""
        records = [record(n) for n in range(4)]
        reports = Reports(4)
        for number, error in enumerate((None, None, TOO_LARGE, PURGED)):
            offset = NO_OFFSET if error else number
            reports.note(error, message(records[number], offset))

        assert faults(reports, *records) == [
            (2, "MSG_SIZE_TOO_LARGE"),
            (3, "_PURGE_INFLIGHT"),
        ]

    def test_of_equal_messages_the_one_to_that_partition_is_refused(self) -> None:
        unknown = KafkaError(KafkaError._UNKNOWN_PARTITION)
        records = [record(n)._replace(partition=n) for n in (7, 0)]
        for refused in records:
            reports = Reports(2)
            for sent in records:
                error = unknown if sent is refused else None
                offset = NO_OFFSET if error else 0
                reports.note(error, message(sent, offset, sent.partition or 0))

            assert faults(reports, *records) == [(refused.id, "_UNKNOWN_PARTITION")]

    def test_a_refusal_that_no_record_matches_is_one_of_all(self) -> None:
        """Better sent twice than lost."""
        records = [record(1), record(2, "l")]
        reports = Reports(2)
        reports.note(None, message(records[0]))
        reports.note(TOO_LARGE, message(record(3, "m"), NO_OFFSET))

        assert faults(reports, *records) == [(1, "_FAIL"), (2, "_FAIL")]

    def test_only_what_has_an_offset_proves_a_partition(self) -> None:
        one, two, three = record(1), record(2, "l"), record(3, "m")
        reports = Reports(3)
        reports.note_place(None, message(one, partition=4))
        reports.note_place(None, message(two, NO_OFFSET, partition=5))
        reports.note_place(TOO_LARGE, message(three, NO_OFFSET, partition=6))

        assert reports.left == 0
        assert reports.places == {("t", 4)}
        assert [number for number, _ in faults(reports, one, two, three)] == [2, 3]


def test_a_ledger_is_acknowledged_only_with_an_offset() -> None:
    sent = message(record(1))
    good, lost, refused = LedgerReport(), LedgerReport(), LedgerReport()
    good.note(None, sent)
    lost.note(None, message(record(1), NO_OFFSET))
    refused.note(TOO_LARGE, sent)

    assert good.is_acknowledged
    assert good.refusal is None
    for report, code in ((lost, "NO_OFFSET"), (refused, "MSG_SIZE_TOO_LARGE")):
        assert not report.is_acknowledged
        assert report.refusal is not None
        assert report.refusal.code == code


class Client:
    """
    A transactional client, whose broker tells for some messages no offset.

    Args:
        lost: numbers of the messages of a transaction; its ledger is the last one.
        silent: the same of those that have no report at all.
    """

    def __init__(
        self, *, lost: AbstractSet[int] = NONE, silent: AbstractSet[int] = NONE
    ) -> None:
        self.ended: list[str] = []
        self._lost, self._silent = lost, silent
        self._queued: list[tuple[Any, Message]] = []

    def produce(self, *arguments: Any, headers: object) -> None:
        topic, value, key, _, report = arguments
        number = len(self._queued)
        sent = record(number, key, topic=topic)._replace(value=value)
        offset = NO_OFFSET if number in self._lost else number
        self._queued.append((report, message(sent, offset)))

    def flush(self, timeout: float) -> int:
        for number, (report, sent) in enumerate(self._queued):
            if number not in self._silent:
                report(None, sent)
        return len(self._silent)

    def poll(self, timeout: float) -> int:
        return 0

    def begin_transaction(self) -> None:
        self._queued.clear()

    def commit_transaction(self, timeout: float) -> None:
        self.ended.append("commit")

    def abort_transaction(self, timeout: float) -> None:
        self.ended.append("abort")
        # What has no report is purged.
        for number in sorted(self._silent):
            report, sent = self._queued[number]
            report(PURGED, sent)

    def __len__(self) -> int:
        return 0


class Anywhere:
    """Each topic and partition exists."""

    def begin(self) -> None: ...

    def check(self, record: Record) -> None: ...


@pytest.fixture(autouse=True)
def _no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_transactions, "drop", lambda _: None)


def send(client: Client, *records: Record) -> list[Fault] | None:
    """Send a transaction through this client."""
    transactions: Any = KafkaTransactions(
        OutboxSettings(LEADER_TOPIC="test"), fencing_token=None, origin=0
    )
    given: Any = client
    transactions._turns.append(Turn(given))
    transactions._destinations = Anywhere()
    found = transactions.send(
        records,
        "leader",
        Ledger(timeline="", records=records),
        patience=1.0,
        may_commit=lambda: True,
    )
    return None if found is None else [*found]


class TestTransactions:
    RECORDS = (record(1), record(2, "l"), record(3, "m"))

    def test_what_is_acknowledged_is_committed(self) -> None:
        client = Client()

        assert send(client, *self.RECORDS) is None
        assert client.ended == ["commit"]

    def test_a_record_without_an_offset_is_not_committed(self) -> None:
        client = Client(lost={1})

        faults = send(client, *self.RECORDS)

        assert client.ended == ["abort"]
        assert faults is not None
        ((found, error),) = faults
        assert found.id == 2
        assert type(error) is DeliveryFailed
        assert error.code == "NO_OFFSET"

    def test_a_ledger_without_an_offset_is_not_committed(self) -> None:
        client = Client(lost={3})

        with pytest.raises(LedgerRefused, match="without an offset"):
            send(client, *self.RECORDS)
        assert client.ended == ["abort"]

    @pytest.mark.parametrize("silent", [{0}, {2}, {3}, {0, 1, 2, 3}])
    def test_what_has_no_report_in_time_is_not_committed(
        self, silent: set[int]
    ) -> None:
        client = Client(silent=silent)

        faults = send(client, *self.RECORDS)

        assert client.ended == ["abort"]
        late = [(number + 1, "_PURGE_INFLIGHT") for number in sorted(silent - {3})]
        assert faults is not None
        assert [(fault.record.id, fault.error.code) for fault in faults] == late
