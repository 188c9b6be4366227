"""
What the relay needs from the outside: a table, a producer, a leader's term.

Adapters live in `postgres/`, `kafka/` and `election/`. Every implementation passes
the same scenarios in `tests/contracts`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias

from ..message.pauses import Pauses
from ..message.record import (
    Backlog,
    ExpiredSeries,
    Failure,
    KeyToRead,
    Record,
    StagingDeadlines,
    Sweep,
)
from .batch import Accepted, Batch, Fault

Outcome: TypeAlias = tuple[Batch, Sequence[Fault]]
"""A batch of which each record has an outcome; a record without a fault is in the
log."""


class SettledTable(Protocol):
    """
    The table, as a leader settles what became of records.

    One object serves one thread. Every method may block up to the statement
    time-out and raises `DatabaseUnavailable` when the outcome is unknown;
    the next call connects again. Another `DatabaseError` means that nothing was
    done: one row may be locked, or refused by a trigger. With no rows, a write only
    tells whether the table accepts writes. Rows are limited to those that are
    the leader's: by its mark in the table, else by the message ids that it has
    read. Without a leader id it is the message ids in either.
    """

    def purge(self, leader_id: str | None, records: Sequence[Record]) -> int:
        """
        Delete these rows where they are the leader's.

        Returns how many there were; fewer than asked means that another
        leader has marked some since, or deleted them.
        """

    def fail(self, leader_id: str, failures: Sequence[Failure]) -> int:
        """Count an attempt and note the error in each row; keep the mark."""

    def park(self, leader_id: str, failures: Sequence[Failure]) -> int:
        """Move these rows, with error and attempts, to the parked table."""

    def kept(self, leader_id: str | None, records: Sequence[Record]) -> set[int]:
        """Return the ids of those rows that are the leader's, and still there."""

    def locked(self, records: Sequence[Record]) -> set[int]:
        """Return the ids of those rows that another session has locked; do not wait."""


class ReadTable(Protocol):
    """
    The table, as a leader reads it; its marks live in the table, or in its memory.

    Blocking and errors are those of `SettledTable`.
    """

    def begin(self) -> None:
        """Begin at the head of the table; what was read before is forgotten."""

    def mark(
        self, leader_id: str, *, limit: int, sweep: Sweep | None = None
    ) -> list[Record]:
        """
        Claim up to `limit` rows from the head that `leader_id` has not marked.

        Returns them in id order. Fewer than `limit` does not mean that the
        table holds no more. With a sweep, rows are claimed that this leader
        has passed and nobody looks after; marks in the table leave none.
        """

    def reset(self, leader_id: str, keys: Sequence[KeyToRead]) -> None:
        """
        Let all rows of these keys that `leader_id` has marked be marked again.

        This includes the row from which a key is held, even if its topic or key
        was corrected.
        """

    def pauses(self) -> Pauses:
        """Return what is not to be sent for now."""

    def ping(self) -> None:
        """Ask the table for nothing, to learn whether it can be reached."""

    def timeline(self) -> str:
        """Name the timeline of the database under which ids are unique."""


class Outbox(ReadTable, SettledTable, Protocol):
    """The table with its marks, as MP/R in the reference has it."""


class Others(NamedTuple):
    """Which ids of a part of the table are not this leader's to send."""

    ids: Sequence[int]
    """Of other shards' rows, in order."""
    end: int
    """The last id of the part."""
    own: int
    """How many rows of the part are this leader's."""


class UnmarkedTable(Protocol):
    """
    The table, as a leader reads it without marking rows.

    One object serves one thread. Every method may block up to the statement
    time-out and raises `DatabaseUnavailable` when nothing could be read.
    Where there are several clusters, it sees the rows of one of them; a sweep
    may find what this cluster takes over of the others. Where there are several
    shards, it sees those of one.
    """

    @property
    def id_increment(self) -> int:
        """How far apart two ids are that are drawn one after the other."""

    @property
    def shards(self) -> int:
        """Among how many leaders the keys are divided."""

    def page(
        self,
        position: int,
        gaps: Sequence[tuple[int, int]],
        keys_to_read: Sequence[KeyToRead] = (),
        *,
        limit: int,
        end: int | None = None,
    ) -> list[Record]:
        """
        Read, in one snapshot, the first `limit` rows that are to be shown.

        Those are the rows of the gaps (first and last id) and all after the
        position, none of which was ever shown; and the rows of the held keys
        up to the position, from the lowest id that is asked for, whatever the
        key. In id order; a row of a held key in a gap comes twice. Nothing after
        `end`, where one is given.
        """

    def others(self, position: int, *, limit: int) -> Others:
        """
        Find which rows after the position belong to other shards.

        It examines as many rows as should contain `limit` of this shard.
        """

    def writers(self) -> tuple[frozenset[str], bool]:
        """
        Name the transactions that may still commit a row with an id drawn before.

        The second value says whether one of them is prepared: such a one may
        have gone by another name before.
        """

    def sweep(self, position: int, sweep: Sweep, *, limit: int) -> list[Record]:
        """Read rows from the head up to the position, except those that are known."""


class Gauge(Protocol):
    """Reads how much waits; a part of the table's adapter."""

    def backlog(self) -> Backlog:
        """Count the rows (up to a cap) and age the oldest."""


class Staging(Protocol):
    """
    The tables of what is not to be sent yet, as a leader empties them.

    One object serves one thread; blocking and errors are those of `Outbox`.
    All methods are safe in a process that has ceased to lead: each does, in
    one statement, what any leader would do, and passes over rows on which
    another works. At most `limit` rows are moved.
    """

    def agenda(self) -> StagingDeadlines | None:
        """Ask what is due, by the database's clock; None: there is no table."""

    def release(self, *, limit: int) -> int:
        """Move messages whose time has come into the outbox, the oldest first."""

    def expire(self, *, limit: int) -> int:
        """Close series whose time is up, so that nothing joins them any more."""

    def clear(self, *, limit: int) -> ExpiredSeries | None:
        """Park or discard messages of one such series; return it after the last."""

    def forget(self, *, limit: int) -> int:
        """Delete what is remembered of series that were closed long ago."""

    def close(self) -> None:
        """Let the connection go; the next call makes a new one."""


class Producer(Protocol):
    """
    Sends batches to Kafka; one object serves one thread.

    Idempotent, acks=all, murmur2. It keeps the order of a partition and, but for
    batches that go apart, sends nothing behind a record that was not delivered.
    """

    @property
    def delivered(self) -> int:
        """Records that it has brought into the log, also of batches under way."""

    @property
    def proven_topics(self) -> set[str]:
        """Topics of which each partition has acknowledged a record; it grows."""

    def produce(self, batch: Batch, leader_id: str) -> Accepted:
        """
        Queue the records of a batch, in their order, until one is not accepted.

        Does not wait, but for the metadata of a topic that it does not know yet.
        """

    def poll(self, timeout: float) -> Sequence[Outcome]:
        """Wait up to `timeout` seconds for reports; return the batches that ended."""

    def purge(self) -> Sequence[Outcome]:
        """Give up on all that is queued or under way, and return these batches."""

    def close(self) -> None:
        """Drop the client without waiting; safe to call twice."""


class Term(Protocol):
    """One leader id with its trust window. Immutable."""

    @property
    def leader_id(self) -> str:
        """UUID as text, new at each acquire and refresh."""

    @property
    def shard(self) -> int:
        """Which part of the keys it leads."""

    @property
    def acquired_at(self) -> float:
        """Monotonic seconds of the first proof; a refresh keeps it."""

    def remaining(self, now: float) -> float:
        """Seconds for which leadership is proven; zero or less: do not act."""


class Leadership(Protocol):
    """
    What the elector knows of one shard, as its relay may read and change it.

    Thread-safe.
    """

    @property
    def shard(self) -> int:
        """Which part of the keys is led."""

    @property
    def term(self) -> Term | None:
        """The present term, or None while another process may lead."""

    def refresh(self, leader_id: str, *, reason: str, now: float) -> Term | None:
        """Replace `leader_id` by a new one in the same window; None if it ended."""

    def resign(self, leader_id: str, *, reason: str) -> None:
        """Ask the elector to give leadership up; returns at once."""
