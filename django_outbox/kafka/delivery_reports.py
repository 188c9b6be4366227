"""
The delivery reports of one transaction, and which records they fault.

All produce calls share one callback, `note`: a closure per record would cost a
tenth of the throughput. Reports are matched to records by topic, key and value;
between equal messages of one key it does not matter which was refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from confluent_kafka import KafkaError as DriverError
from confluent_kafka import Message

from ..exceptions import DeliveryFailed
from ..message.record import Record
from ..relay.ledger.ports import Fault
from .failures import failure, no_offset

_ABANDONED: Final = frozenset({"_PURGE_QUEUE", "_PURGE_INFLIGHT"})
"""Codes of records that were dropped with the transaction, not at fault."""


class Reports:
    """The delivery reports of one transaction."""

    def __init__(self) -> None:
        self.acknowledged = 0
        """Messages that are in the log, each at an offset."""
        self.ledger_refusal: DeliveryFailed | None = None
        """Why the ledger itself was refused, if it was."""
        self._refused: list[tuple[Message, DriverError | None]] = []
        self._faults: list[Fault] = []

    def reject(self, record: Record, error: DriverError) -> None:
        """Note that the client did not queue this record."""
        self.refuse(record, failure(error, is_alone=True))

    def refuse(self, record: Record, failed: DeliveryFailed) -> None:
        """Note why this record cannot be queued."""
        self._faults.append(Fault(record, failed))

    def note(self, error: DriverError | None, message: Message) -> None:
        """Take a delivery report; without an offset it counts as a refusal."""
        if error is None and message.offset() is not None:
            self.acknowledged += 1
        else:
            self._refused.append((message, error))

    def note_ledger(self, error: DriverError | None, message: Message) -> None:
        """Take the delivery report of the ledger."""
        if error is None and message.offset() is not None:
            self.acknowledged += 1
        elif error is None:
            self.ledger_refusal = no_offset()
        else:
            self.reject_ledger(error)

    def reject_ledger(self, error: DriverError) -> None:
        """Note why the ledger was refused, unless it was dropped with others."""
        if error.name() not in _ABANDONED:
            self.ledger_refusal = failure(error, is_alone=True)

    def faults(self, records: Sequence[Record], *, was_late: bool) -> list[Fault]:
        """
        Return the records that prevented the commit.

        With `was_late` the transaction was aborted because records took too long;
        then those are at fault, unless others were refused.
        """
        is_alone = len(records) == 1
        faults = list(self._faults)
        late: list[Fault] = []
        for record, error in self._refused_records(records):
            if error is None:
                faults.append(Fault(record, no_offset()))
                continue
            fault = Fault(record, failure(error, is_alone=is_alone))
            (late if error.name() in _ABANDONED else faults).append(fault)
        return faults or (late if was_late else [])

    def _refused_records(
        self, records: Sequence[Record]
    ) -> Iterator[tuple[Record, DriverError | None]]:
        sent: dict[tuple[str, str, bytes | None], deque[Record]] = {}
        for record in records:
            identity = (record.topic, record.key, _raw(record.value))
            sent.setdefault(identity, deque()).append(record)
        for message, error in self._refused:
            value = message.value()
            identity = (message.topic() or "", _text(message.key()), _raw(value))
            if waiting := sent.get(identity):
                yield waiting.popleft(), error


def _raw(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _text(key: str | bytes | None) -> str:
    return key.decode() if isinstance(key, bytes) else key or ""
