"""
Plain values that travel from the table to Kafka and back to the table.

`postgres/` makes `Record`s from rows, `relay/` decides what becomes of them,
`kafka/` sends them. Nothing here knows Django, a driver or a clock.
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

    A named tuple, not a dataclass: twenty thousand of them are made every
    second, straight from the driver's row tuples.
    """

    id: int
    """The row's id: the order of insertion."""
    topic: str
    key: str
    value: str | bytes | None
    """Text, raw bytes, or None for a tombstone."""
    header_keys: list[str]
    header_values: list[str | None]
    """The user's headers, in their order; same length as `header_keys`."""
    partition: int | None
    """The partition that the writer chose, or None: murmur2 of the key."""
    message_id: str
    """UUID as text: the consumer's idempotency key."""
    created_at: str
    """Microseconds since the epoch, as decimal text."""
    cluster_id: int
    """The cluster in which the row was written."""
    attempts: int
    """How often delivery has failed, as the table knows it."""

    @classmethod
    def identified(cls, id: int, message_id: str) -> Record:  # noqa: A002
        """Make a record of which nothing but the identity is known."""
        return cls(id, "", "", None, [], [], None, message_id, "", 0, 0)

    @property
    def lane(self) -> Lane:
        return (self.topic, self.key)

    @property
    def is_tombstone(self) -> bool:
        return self.value is None


def size_of(records: Collection[Record]) -> int:
    """
    Return how long values and headers are: characters of text, bytes of raw values.

    A record has the same size each time, whatever is in its headers.
    """
    values = sum([len(record.value or "") for record in records])
    try:
        # In C: ten thousands of records are measured every second.
        return values + len("".join(_flat(_flat(map(_HEADERS, records)))))
    except TypeError:
        headers = (text for r in records for text in (*r.header_keys, *r.header_values))
        return values + sum(map(_length_of, headers))


_HEADERS: Final = attrgetter("header_keys", "header_values")
_flat: Final = chain.from_iterable


def _length_of(text: object) -> int:
    # goharvest's own table takes nulls, and arrays of arrays.
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
    """Rows that were moved to the parked table; None until it has answered."""
    is_uncertain: bool = False
    """A try ended without an answer: rows that are missing may be its work."""

    def __len__(self) -> int:
        return len(self.acknowledged) + len(self.failed) + len(self.poisoned)


class Backlog(NamedTuple):
    """How much waits in the table."""

    records: int
    """Rows in the table, counted up to a cap."""
    is_capped: bool
    """True when there are at least `records` rows and counting stopped."""
    oldest_age: float
    """Seconds since the first row was created, 0.0 when there is none."""


class Waiting(NamedTuple):
    """How much of one cluster's records waits in the table."""

    origin: int
    """The cluster in which they were written."""
    records: int
    oldest_age: float | None
    """Seconds since the oldest was created; None: none has a finite time."""


class Numbering(NamedTuple):
    """What makes the rows and the ids of a table one cluster's own."""

    default: str | None
    """Of the column cluster_id in the outbox, as SQL; None: it has none."""
    staged_default: str | None
    """The same of the staged table."""
    sequence: str | None
    """From which ids are drawn; None: they are not."""
    increment: int | None
    last_id: int | None
    """The last that was drawn, or the first that will be."""


class Identity(NamedTuple):
    """Which outbox this is, and where it lies."""

    outbox: str
    """UUID as text: made once, goes wherever the data goes."""
    system: str
    """The server's system identifier and the database's oid: another one in a copy."""


class StagingDeadlines(NamedTuple):
    """When staged messages want something of the leader. Durations are seconds."""

    due: float
    """Until the first message with a date may be sent; 0.0: now."""
    overdue: float
    """Until the time of the first series is up."""
    forgettable: float
    """Until the oldest closed series need not be remembered any more."""
    is_expiring: bool
    """The time of a series is up, and its messages are still staged."""


class ExpiredSeries(NamedTuple):
    """A series whose time was up; its messages are gone from the staged table."""

    name: str
    messages: int
    """That were staged in it."""
    action: str
    """What became of them: `park` or `discard`."""
