"""
The ledger topic: which rows are in the log and may still be in the table.

A compacted topic with one key for each shard, so only the last ledger of a shard
matters. Each transaction writes one; a producer that opens reads the last
committed one.

The value has 24 bytes for each record: its id (signed, big-endian), then the 16
bytes of its message id. A header names the timeline in which the ids are unique.

With several clusters, 26 bytes follow for each range of committed ids: first,
last, latest time of creation, and the id increment; a header has their number.

With several shards, a header has their number, too. A leader whose number is not that
of the last ledger announces it under a key of its own before it sends anything.

The relay purges the rows that a ledger lists, so a forged record must not count
as a ledger. The headers have names that rows must not use, a record that an
outbox relayed is refused by its message id, and invalid records are skipped in
favour of the ledger before them. An older ledger is true too; it only lists less.
"""

from __future__ import annotations

import logging
import re
import struct
import sys
import uuid
from array import array
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ..exceptions import KafkaError, LedgerInvalid
from ..message.headers import MESSAGE_ID, Headers, texts
from ..message.record import Record
from ..relay.ledger.committed_ids import MAX_RANGES, IdRange, fault_of
from ..relay.ledger.ports import Ledger
from ..settings.rules import MOST_SHARDS

logger = logging.getLogger(__name__)

FORMAT: Final = 1
"""Version of the value's format, in the header of that name."""

_FORMAT: Final = "outbox-ledger-format"
_TIMELINE: Final = "outbox-ledger-timeline"
_RANGES: Final = "outbox-ledger-ranges"
_SHARDS: Final = "outbox-ledger-shards"
_READ: Final = (_FORMAT, _TIMELINE, _RANGES, _SHARDS, MESSAGE_ID)

_DIGITS: Final = re.compile(r"[0-9]{1,6}", re.ASCII)

_PAIR: Final = struct.Struct(">q16s")
_RANGE: Final = struct.Struct(">qqqH")

_ANNOUNCEMENT: Final = re.compile(rb"([0-9]{1,3})-of-([0-9]{1,3})")


def encode(ledger: Ledger, *, shards: int = 1) -> tuple[Headers, bytes]:
    """
    Return a ledger as the headers and the value of a message.

    Args:
        shards: into how many the writer divides the keys.
    """
    headers: Headers = [
        (_FORMAT, str(FORMAT)),
        (_TIMELINE, ledger.timeline),
        (_RANGES, str(len(ledger.relayed))),
    ]
    if shards > 1:
        headers.append((_SHARDS, str(shards)))
    ranges = [_RANGE.pack(r.low, r.high, r.newest, r.step) for r in ledger.relayed]
    return headers, _identities(ledger.records) + b"".join(ranges)


def _identities(records: Sequence[Record]) -> bytes:
    """Encode ids and message ids as words of eight bytes: three for each record."""
    ids = array("q", [record.id for record in records])
    if sys.byteorder == "little":
        ids.byteswap()
    text = "".join([record.message_id for record in records]).replace("-", "")
    halves = array("q", bytes.fromhex(text))
    words = array("q", bytes(24 * len(records)))
    words[0::3], words[1::3], words[2::3] = ids, halves[0::2], halves[1::2]
    return words.tobytes()


def decode(fields: Mapping[str, str], value: bytes | None) -> Ledger:
    """
    Read a message's headers and value as a ledger; no value is an empty ledger.

    Raises:
        LedgerInvalid: this is not a ledger.
        KafkaError: a later version wrote it.
    """
    if MESSAGE_ID in fields:
        raise LedgerInvalid("it is a row of an outbox table")
    if value is None:
        return Ledger(timeline="", records=[])
    _check_format(fields.get(_FORMAT, ""))
    ranges = _number(fields.get(_RANGES, ""))
    end = len(value) - _RANGE.size * (ranges or 0)
    if ranges is None or ranges > MAX_RANGES or end < 0 or end % _PAIR.size:
        raise LedgerInvalid(f"{len(value)} bytes do not fit its header {_RANGES}")
    relayed = tuple(
        IdRange(low, high, step, newest)
        for low, high, newest, step in _RANGE.iter_unpack(value[end:])
    )
    if fault := fault_of(relayed):
        raise LedgerInvalid(fault)
    records = [
        Record.identified(id_, str(uuid.UUID(bytes=raw)))
        for id_, raw in _PAIR.iter_unpack(value[:end])
    ]
    return Ledger(
        timeline=fields.get(_TIMELINE, ""),
        records=records,
        relayed=relayed,
        shards=_number(fields.get(_SHARDS, "")) or 1,
    )


def _check_format(text: str) -> None:
    number = _number(text)
    if number is not None and number > FORMAT:
        raise KafkaError(
            f"The last ledger has format {number}; this version of django-outbox reads "
            f"{FORMAT}. Upgrade it, or void the ledger: docs/operations/ledger.md."
        )
    if number != FORMAT:
        raise LedgerInvalid(f"its header {_FORMAT} is not {FORMAT}")


def _number(text: str) -> int | None:
    return int(text) if _DIGITS.fullmatch(text) else None


class Entry(NamedTuple):
    """One record of the ledger topic, not validated yet."""

    offset: int
    key: bytes | None
    fields: Mapping[str, str]
    """The headers that ledgers use."""
    value: bytes | None

    @classmethod
    def of(
        cls, offset: int, key: bytes | None, headers: Any, value: bytes | None
    ) -> Entry:
        found = texts(headers)
        fields: dict[str, str] = {n: found[n] for n in _READ if n in found}
        # Drop the values of other records, which may be large and many.
        is_ours = value is None or (_FORMAT in fields and MESSAGE_ID not in fields)
        return cls(offset, key, fields, value if is_ours else b"")


class LedgerTail(NamedTuple):
    """What the end of a shard's partition tells."""

    ledger: Ledger | None
    """The last one."""
    announced: frozenset[int] = frozenset()
    """Numbers of shards that leaders have announced since."""

    @property
    def numbers(self) -> frozenset[int]:
        """Numbers of shards whose leaders may have a transaction open."""
        last = {self.ledger.shards} if self.ledger else ()
        return self.announced.union(last)


def announcement(shard: int, shards: int) -> tuple[str, Headers]:
    """Return the key and the headers with which a leader announces its number."""
    return f"{shard}-of-{shards}", [(_FORMAT, str(FORMAT))]


def _announced_in(entry: Entry, shard: int) -> int | None:
    """Return the number of shards that an entry announces, if it does."""
    found = _ANNOUNCEMENT.fullmatch(entry.key or b"")
    if found is None or int(found[1]) != shard or MESSAGE_ID in entry.fields:
        return None
    return int(found[2]) if 1 <= int(found[2]) <= MOST_SHARDS else None


def _ledger_in(entry: Entry, shard: int) -> Ledger:
    if entry.key != str(shard).encode():
        raise LedgerInvalid("it has another key")
    return decode(entry.fields, entry.value)


def tail_of(entries: Sequence[Entry], *, topic: str, shard: int) -> LedgerTail:
    """
    Return the last valid ledger of a shard among these records, and what follows it.

    Raises:
        KafkaError: a later version wrote it.
    """
    ledger, fault, skipped = None, "", 0
    announced: set[int] = set()
    for entry in reversed(entries):
        if shards := _announced_in(entry, shard):
            announced.add(shards)
            continue
        try:
            ledger = _ledger_in(entry, shard)
            break
        except LedgerInvalid as error:
            fault = fault or f"offset {entry.offset}: {error}"
            skipped += 1
    if skipped:
        logger.error(
            "Skipped %d invalid record(s) in the ledger topic %s (partition %d, %s). "
            "Another client writes to this topic: revoke its permission. Records that "
            "were sent but not purged may be sent again; see docs/operations/ledger.md",
            *(skipped, topic, shard, fault),
            extra={"action": "ledger_skipped"},
        )
    return LedgerTail(ledger, frozenset(announced))
