"""
The ledger topic: which rows are in the log and may still be in the table.

A compacted topic with one key for each shard, so that only the last ledger of
a shard matters. `transactions.py` writes one with each transaction and reads
the last committed one when it opens.

The value is 24 bytes for each record: its id (signed, big-endian), then the 16
bytes of its message id. What the ids are unique under stands in the headers.

Where there are several clusters, 26 bytes follow for each range of ids that
were committed: first, last, newest time of creation, and how far apart they
are; a header says how many there are. Such a ledger has a format of its own.
"""

from __future__ import annotations

import struct
import sys
import time
import uuid
from array import array
from collections.abc import Mapping, Sequence
from typing import Final

from confluent_kafka import (
    Consumer,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka import KafkaError as DriverError

from ..exceptions import KafkaError, KafkaUnavailable
from ..ledger.ports import Ledger
from ..ledger.relayed import Range
from ..records import Record
from .config import KafkaConfig
from .envelope import Headers, texts
from .logs import CLIENT_LOG

FORMAT: Final = "1"
"""Version of the value's format, in the header `ledger-format`."""

FORMAT_WITH_RANGES: Final = "2"
"""The version that has the header `ledger-ranges`, too."""

_FORMATS: Final = frozenset({FORMAT, FORMAT_WITH_RANGES})

_RANGE: Final = struct.Struct(">qqqH")

_FIRST_STEP: Final = 8
"""Offsets to go back from the end at first: behind the last ledger come the mark
of its commit, and whatever aborted transactions have left."""

_POLL: Final = 0.1


def encode(ledger: Ledger) -> tuple[Headers, bytes]:
    """Write a ledger as headers and value of a message."""
    value = _identities(ledger.records)
    history = ("ledger-history", ledger.history)
    if not ledger.relayed:
        return [("ledger-format", FORMAT), history], value
    ranges = [_RANGE.pack(r.low, r.high, r.newest, r.step) for r in ledger.relayed]
    number = ("ledger-ranges", str(len(ranges)))
    headers: Headers = [("ledger-format", FORMAT_WITH_RANGES), history, number]
    return headers, value + b"".join(ranges)


def _identities(records: Sequence[Record]) -> bytes:
    """Write ids and message ids, as words of eight bytes: one and two a record."""
    ids = array("q", [record.id for record in records])
    if sys.byteorder == "little":
        ids.byteswap()
    text = "".join([record.message_id for record in records]).replace("-", "")
    halves = array("q", bytes.fromhex(text))
    words = array("q", bytes(24 * len(records)))
    words[0::3], words[1::3], words[2::3] = ids, halves[0::2], halves[1::2]
    return words.tobytes()


def decode(fields: Mapping[str, str], value: bytes) -> Ledger:
    """
    Read a message's headers and value as a ledger.

    Raises:
        KafkaError: it is none, or of a later format.
    """
    ranges = _ranges(fields)
    end = len(value) - _RANGE.size * ranges
    if fields.get("ledger-format") not in _FORMATS or end < 0 or end % 24:
        raise KafkaError(
            "The ledger topic's last record is no ledger of this version "
            f"(ledger-format {fields.get('ledger-format')!r}, {len(value)} bytes). "
            "Update django-outbox, or find out who else writes to the topic."
        )
    records = [
        Record.identified(id_, str(uuid.UUID(bytes=raw)))
        for id_, raw in struct.iter_unpack(">q16s", value[:end])
    ]
    relayed = tuple(
        Range(low, high, step, newest)
        for low, high, newest, step in _RANGE.iter_unpack(value[end:])
    )
    history = fields.get("ledger-history", "")
    return Ledger(history=history, records=records, relayed=relayed)


def _ranges(fields: Mapping[str, str]) -> int:
    number = fields.get("ledger-ranges", "0")
    return int(number) if number.isdecimal() else 0


def read_last(
    config: KafkaConfig, *, topic: str, shard: int, timeout: float
) -> Ledger | None:
    """
    Read the last committed ledger of a shard; None when there has been none.

    Args:
        config: of the consumer; see `config.ledger_consumer_config`.
        topic: the ledger topic, whose partition is the shard.
        timeout: seconds.

    Raises:
        KafkaUnavailable: the partition could not be read to its end.
    """
    client_config: KafkaConfig = {**config, "logger": CLIENT_LOG}
    consumer = Consumer(client_config)
    deadline = time.monotonic() + timeout
    try:
        partition = TopicPartition(topic, shard)
        low, high = consumer.get_watermark_offsets(partition, timeout=timeout)
        step = _FIRST_STEP
        while high > low:
            start = max(low, high - step)
            consumer.assign([TopicPartition(topic, shard, start)])
            messages = _to_the_end(consumer, deadline)
            if messages:
                last = messages[-1]
                return decode(texts(last.headers()), last.value() or b"")
            if start == low:
                return None
            step *= 8
    except KafkaException as error:
        raise KafkaUnavailable(f"The ledger: {error.args[0].str()}.") from error
    finally:
        consumer.close()
    return None


def _to_the_end(consumer: Consumer, deadline: float) -> Sequence[Message]:
    """Read committed messages up to the end of the partition; keep the last."""
    last: list[Message] = []
    while time.monotonic() < deadline:
        message = consumer.poll(_POLL)
        if message is None:
            continue
        error = message.error()
        if error is None:
            last = [message]
        elif error.code() == DriverError._PARTITION_EOF:
            return last
        elif not error.retriable():
            raise KafkaException(error)
    raise KafkaUnavailable("The ledger could not be read to its end in time.")
