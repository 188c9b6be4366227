"""
Records of the outbox and what is known of them, as plain values.

Independent of Django, of drivers and of clocks.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain
from operator import attrgetter
from typing import Final, NamedTuple, TypeAlias

OrderingKey: TypeAlias = tuple[str, str]
"""(topic, key): the unit of order."""


HIGHEST_ID: Final = 2**63 - 1
"""Of PostgreSQL's bigint."""

UNREADABLE: Final = "\0unreadable"
"""The name of the only header of a record whose row cannot be read; the other one is
the reason. A text of PostgreSQL never contains NUL."""


class Record(NamedTuple):
    """
    One row of the outbox, as it was read.

    A named tuple and not a dataclass, because twenty thousand a second are created
    from the driver's row tuples.
    """

    id: int
    """The row's id: the order of insertion."""
    topic: str
    key: str
    value: str | bytes | None
    """Text, raw bytes, or None for a tombstone."""
    header_keys: list[str]
    header_values: list[str | None]
    """The user's headers in order; of the same length as `header_keys`."""
    partition: int | None
    """The partition that the writer chose; None: chosen by murmur2 of the key."""
    message_id: str
    """UUID as text: the consumer's idempotency key."""
    created_at: str
    """Microseconds since the epoch, as decimal text."""
    cluster_id: int
    """The cluster in which the row was written."""
    attempts: int
    """Number of failed deliveries according to the table."""

    @classmethod
    def identified(cls, id: int, message_id: str) -> Record:  # noqa: A002
        """Make a record of which only the ids are known."""
        return cls(id, "", "", None, [], [], None, message_id, "", 0, 0)

    @classmethod
    def unreadable(
        cls,
        id: int,  # noqa: A002
        ordering_key: OrderingKey,
        message_id: str,
        created_at: str = "0",
        cluster_id: int = 0,
        attempts: int = 0,
        *,
        reason: str,
    ) -> Record:
        """Make a record whose row cannot be read: poison, and its header says why."""
        topic, key = ordering_key
        return cls.identified(id, message_id)._replace(
            topic=topic,
            key=key,
            header_keys=[UNREADABLE, reason],
            created_at=created_at,
            cluster_id=cluster_id,
            attempts=attempts,
        )

    @property
    def ordering_key(self) -> OrderingKey:
        return (self.topic, self.key)

    @property
    def is_tombstone(self) -> bool:
        return self.value is None


def size_of(records: Collection[Record]) -> int:
    """
    Return the size of values and headers: characters of text, bytes of raw values.

    The size of a record never changes, whatever its headers contain.
    """
    values = sum([len(record.value or "") for record in records])
    try:
        # In C, for tens of thousands of records a second.
        return values + len("".join(_flat(_flat(map(_HEADERS, records)))))
    except TypeError:
        headers = (text for r in records for text in (*r.header_keys, *r.header_values))
        return values + sum(map(_length_of, headers))


_HEADERS: Final = attrgetter("header_keys", "header_values")
_flat: Final = chain.from_iterable


def _length_of(text: object) -> int:
    # goharvest's own table accepts nulls, and arrays of arrays.
    return len(text if isinstance(text, str) else repr(text))


class Failure(NamedTuple):
    """Why a record was not delivered, for the table's attempts and last_error."""

    record: Record
    error: str
    """Code and text, without the payload or the key."""


class KeyToRead(NamedTuple):
    """A key whose rows have to be read again, from an id on."""

    ordering_key: OrderingKey
    low: int
    """The lowest id."""


class Sweep(NamedTuple):
    """What a repair scan skips, because the relay has it already, and its end."""

    known: Collection[int]
    """Ids that were read and are not settled."""
    passed: Collection[OrderingKey]
    """Keys that wait for a retry, or are paused."""
    passed_topics: Collection[str] = frozenset()
    """Topics that are paused."""
    is_whole: bool = False
    """Whether it reads the whole table, and not only up to the position."""


class Backlog(NamedTuple):
    """The records that wait in the table."""

    records: int
    """Rows in the table, counted up to a cap."""
    is_capped: bool
    """Whether counting stopped at the cap: there may be more rows."""
    oldest_age: float
    """Seconds since the oldest row was created; 0.0 without rows."""


class TopicCounts(NamedTuple):
    """The records that wait in the table, by topic."""

    largest: tuple[tuple[str, int], ...]
    """The topics with the most records, and how many these are, up to a cap."""
    others: int
    """Records of all other topics."""


class ClusterBacklog(NamedTuple):
    """The records of one cluster that wait in the table."""

    origin: int
    """The cluster in which they were written."""
    records: int
    oldest_age: float | None
    """Seconds since the oldest one was created; None: none has a finite time."""


class Numbering(NamedTuple):
    """The defaults and the sequence that assign rows and ids to a cluster."""

    default: str | None
    """Default of the column cluster_id in the outbox, as SQL; None: without default."""
    staged_default: str | None
    """The same of the staged table."""
    sequence: str | None
    """Sequence of the ids; None: without sequence."""
    increment: int | None
    last_id: int | None
    """The last id that was drawn, or the first one if none was."""


class Identity(NamedTuple):
    """The identity of an outbox, and where it is."""

    outbox: str
    """UUID as text: created once, copied with the data."""
    system: str
    """The server's system identifier, and the oids of the database and the schema: a
    copy has others."""


class StagingDeadlines(NamedTuple):
    """When staged messages need the leader next, in seconds from now."""

    due: float
    """Until the first delayed message is due; 0.0: now."""
    overdue: float
    """Until the first series expires."""
    purgeable_at: float
    """Until the oldest closed series can be purged."""
    is_expiring: bool
    """Whether an expired series still has staged messages."""


class ExpiredSeries(NamedTuple):
    """An expired series; its messages were removed from the staged table."""

    name: str
    messages: int
    """Number of its messages."""
    action: str
    """What happened to them: `park` or `discard`."""
