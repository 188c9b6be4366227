"""What is known of a database and its outbox: plain values, without a driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple


class ServerFacts(NamedTuple):
    """Settings of the server, as a session of the harvester has them."""

    is_standby: bool
    is_read_only: bool
    """Whether transactions are read-only in this session."""
    fsync: bool
    full_page_writes: bool
    synchronous_commit: str
    synchronous_standby_names: str
    autovacuum: bool
    """Whether it runs: it also needs `track_counts`."""
    role: str
    sees_all_sessions: bool
    """Whether the role may see the transactions of other roles."""


class LooseCommit(NamedTuple):
    """A role or a database for which `synchronous_commit` is set."""

    role: str
    """Empty: every role."""
    database: str
    """Empty: every database."""
    value: str


class TableFacts(NamedTuple):
    """The state of one table."""

    name: str
    is_unlogged: bool
    live: int
    """Estimated rows."""
    dead: int
    """Estimated rows that are deleted and not removed yet."""
    size: int
    """Bytes, with indexes and large values."""
    is_vacuumed: bool
    """Whether autovacuum is on for this table."""
    vacuumed: float | None
    """Seconds since the last vacuum; None: it is unknown."""


class OldTransaction(NamedTuple):
    """A transaction of a session that keeps vacuum from removing rows."""

    pid: int
    application: str
    state: str
    age: float
    """Seconds."""


class PreparedTransaction(NamedTuple):
    """A transaction that waits for its COMMIT PREPARED."""

    name: str
    age: float
    """Seconds."""


class SlotFacts(NamedTuple):
    """A replication slot."""

    name: str
    is_active: bool
    xmin_age: int
    """Transactions since the oldest one whose rows it keeps; 0: it keeps none."""
    retained: float
    """Bytes of WAL that it keeps."""
    status: str
    """`reserved`, `extended`, `unreserved` or `lost`."""


class IdSequence(NamedTuple):
    """The sequence of the ids."""

    name: str
    cache: int


class Privilege(NamedTuple):
    """A right on an object of the outbox, or on a column."""

    suffix: str
    """Of the object's name: `_parked`; empty for the outbox itself."""
    privilege: str
    column: str = ""
    """Empty: on the whole object."""
    kind: Literal["table", "ids", "function", "schema"] = "table"
    """`ids`: the sequence of the ids; `schema`: the schema of the outbox. Both may have
    any name."""


class WaitingTopic(NamedTuple):
    """A topic for which records wait."""

    topic: str
    records: int
    oldest_at: float | None
    """When the oldest of them was written, in seconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseFacts:
    """What one look at a database has found."""

    server: ServerFacts
    is_pooled: bool = False
    """Whether a pooler may change the server behind a connection."""
    role: str = ""
    """The role whose privileges were looked up."""
    loose_commits: Sequence[LooseCommit] = ()
    tables: Sequence[TableFacts] = ()
    absent: Sequence[str] = ()
    """Suffixes of tables that do not exist."""
    transactions: Sequence[OldTransaction] = ()
    prepared: Sequence[PreparedTransaction] = ()
    slots: Sequence[SlotFacts] = ()
    sequence: IdSequence | None = None
    missing: Sequence[Privilege] = ()
    """Privileges that the role lacks."""
    waiting: Sequence[WaitingTopic] = ()
    unseen: Mapping[str, str] = field(default_factory=dict)
    """What could not be read, and why."""
