"""
The delivery reports of records that are sent together.

All produce calls share one callback: a closure for each record would cost a tenth of
the throughput. Only refusals are matched to records, by topic, key and value; the
driver's message has no headers at this point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

from confluent_kafka import KafkaError as DriverError
from confluent_kafka import Message

from ..exceptions import DeliveryFailed
from ..message.record import OrderingKey, Record
from ..relay.batch import Fault
from .failures import failure, no_offset

Convert: TypeAlias = Callable[[DriverError], DeliveryFailed]
"""Turns the driver's error into the relay's."""

_UNMATCHED: Final = "Kafka refused a message of the batch that no record matches."


class Reports:
    """
    Counts reports, and keeps those of messages that are not in the log.

    Args:
        count: messages that were queued.
        proven: takes the topics and keys of messages that a partition has proven.
    """

    def __init__(self, count: int, proven: list[OrderingKey] | None = None) -> None:
        self.count = count
        """Messages that were queued."""
        self.left = count
        """Messages without a report."""
        self.places: set[tuple[str | None, int | None]] = set()
        """Topics and partitions that have acknowledged a message, where noted."""
        self._proven = [] if proven is None else proven
        self._refused: list[tuple[Message, DriverError | None]] = []

    def expect(self, count: int) -> None:
        """Note that more messages were queued."""
        self.count += count
        self.left += count

    @property
    def delivered(self) -> int:
        """Messages that are in the log."""
        return self.count - self.left - len(self._refused)

    @property
    def are_refused(self) -> bool:
        """Whether some message was refused, or dropped."""
        return bool(self._refused)

    def note(self, error: DriverError | None, message: Message) -> None:
        """Take a delivery report; without an offset it counts as a refusal."""
        self.left -= 1
        if error is not None or message.offset() is None:
            self._refused.append((message, error))

    def note_place(self, error: DriverError | None, message: Message) -> None:
        """Take a delivery report, and note which partition it proves to work."""
        self.note(error, message)
        if error is None and message.offset() is not None:
            self.places.add((message.topic(), message.partition()))
            self._proven.append((message.topic() or "", _text(message.key())))

    def faults(self, records: Sequence[Record], convert: Convert) -> list[Fault]:
        """Return the records that were refused, in their order, and why."""
        if not self._refused:
            return []
        faults = [
            Fault(record, no_offset() if error is None else convert(error))
            for record, error in self._refused_records(records)
        ]
        if len(faults) < len(self._refused):
            # Better sent twice than lost.
            unmatched = DeliveryFailed(_UNMATCHED, code="_FAIL")
            return [Fault(record, unmatched) for record in records]
        order = {record.id: place for place, record in enumerate(records)}
        return sorted(faults, key=lambda fault: order[fault.record.id])

    def _refused_records(
        self, records: Sequence[Record]
    ) -> Iterator[tuple[Record, DriverError | None]]:
        """Match each refusal with the last record that it may be about."""
        sent: dict[tuple[str, str, bytes | None], list[Record]] = {}
        for record in records:
            identity = (record.topic, record.key, _raw(record.value))
            sent.setdefault(identity, []).append(record)
        # Nothing goes out behind a refusal: of equal messages, the last ones failed.
        for message, error in reversed(self._refused):
            value = message.value()
            identity = (message.topic() or "", _text(message.key()), _raw(value))
            equal = sent.get(identity, [])
            if error is None:
                # Any of them may be lost.
                yield from [(record, error) for record in equal]
                equal.clear()
            for place in reversed(range(len(equal))):
                if equal[place].partition in (None, message.partition()):
                    yield equal.pop(place), error
                    break


class LedgerReport:
    """The delivery report of a transaction's ledger."""

    def __init__(self) -> None:
        self.is_acknowledged = False
        self.refusal: DeliveryFailed | None = None
        """Why the ledger was refused, if it was."""

    def note(self, error: DriverError | None, message: Message) -> None:
        """Take the report."""
        if error is not None:
            self.refusal = failure(error, is_alone=True)
        elif message.offset() is None:
            self.refusal = no_offset()
        else:
            self.is_acknowledged = True


def _raw(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _text(key: str | bytes | None) -> str:
    return key.decode() if isinstance(key, bytes) else key or ""
