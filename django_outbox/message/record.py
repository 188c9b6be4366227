"""
Records of the outbox and what is known of them, as plain values.

Independent of Django, of drivers and of clocks.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import Final, NamedTuple, TypeAlias

Lane: TypeAlias = tuple[str, str]
"""(topic, key): the unit of order. At most one record of a lane is in flight."""


class Record(NamedTuple):
    """
    One outbox row that this leader has marked.

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

    @property
    def lane(self) -> Lane:
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


class Held(NamedTuple):
    """From where on the rows of a lane are to be found again."""

    lane: Lane
    low: int
    """The lowest id."""


class Sweep(NamedTuple):
    """What a search from the head passes over: it is looked after already."""

    known: Collection[int]
    """Ids that were found and are not settled."""
    passed: Collection[Lane]
    """Lanes that wait for a retry."""


@dataclass(slots=True, kw_only=True)
class Claim:
    """
    What the dispatcher asks of the table, and what came of it.

    Without lanes and limit it only asks whether the table can be reached.
    """

    leader_id: str
    """UUID as text: for whom rows are marked and reset."""
    lanes: list[Held] = field(default_factory=list)
    """To reset, before anything is marked."""
    limit: int = 0
    """Rows to mark at most; 0 marks none."""
    sweep: Sweep | None = None
    """To mark what a search from the head finds, and not what is next."""
    records: list[Record] = field(default_factory=list)
    """What was marked, in id order."""
    retry_at: float | None = None
    """Boot-time seconds to retry at, when this try has failed."""
    is_uncertain: bool = False
    """Whether a try that failed may have changed the table."""


@dataclass(slots=True, kw_only=True)
class Settlement:
    """
    What acknowledgements and errors decided, for one round trip to the table.

    All of it was produced under one leader id, which scopes every write.
    """

    leader_id: str
    """UUID as text."""
    acknowledged: list[Record] = field(default_factory=list)
    """In the log with an offset: to purge."""
    failed: list[Failure] = field(default_factory=list)
    """To note in the row; its key stays blocked until it is reset."""
    poisoned: list[Failure] = field(default_factory=list)
    """To move to the parked table."""
    purged: int | None = None
    """Rows that the purge deleted; None until the table has answered."""
    parked: int | None = None
    """Rows moved to the parked table; None until the table has answered."""
    is_uncertain: bool = False
    """A try ended without an answer: rows that are missing may be its work."""

    def __len__(self) -> int:
        return len(self.acknowledged) + len(self.failed) + len(self.poisoned)


class Backlog(NamedTuple):
    """The records that wait in the table."""

    records: int
    """Rows in the table, counted up to a cap."""
    is_capped: bool
    """Whether counting stopped at the cap: there may be more rows."""
    oldest_age: float
    """Seconds since the oldest row was created; 0.0 without rows."""


class Waiting(NamedTuple):
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
    """The identity of an outbox and of the database it is in."""

    outbox: str
    """UUID as text: created once, copied with the data."""
    system: str
    """The server's system identifier and the database's oid: a copy has others."""


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
