"""Everything that the doctor looks for, with its level and its risk."""

from __future__ import annotations

from typing import Final

from .finding import Kind, Level

_ERROR: Final = Level.ERROR
_WARNING: Final = Level.WARNING

# Durability of a topic.

REPLICATION_FACTOR: Final = Kind(
    "replication-factor",
    _ERROR,
    "A broker that loses its disk takes acknowledged messages with it.",
)
MIN_INSYNC_REPLICAS: Final = Kind(
    "min-insync-replicas",
    _ERROR,
    "Kafka acknowledges a message that only one broker has; if that broker fails, the"
    " message is lost.",
)
UNCLEAN_ELECTION: Final = Kind(
    "unclean-leader-election",
    _ERROR,
    "A replica that lags behind may become the leader: the messages that it lacks are"
    " lost.",
)
NO_SPARE_REPLICA: Final = Kind(
    "no-spare-replica",
    _WARNING,
    "Nothing is lost, but one broker that is away stops all writes to the topic.",
)
OUT_OF_SYNC: Final = Kind(
    "replicas-out-of-sync",
    _WARNING,
    "Fewer brokers than planned have the messages now.",
)

# Other settings of topics.

TOPIC_MISSING: Final = Kind(
    "topic-missing",
    _ERROR,
    "Messages to the topic cannot be sent; they wait in the outbox, with their keys.",
)
RETENTION: Final = Kind(
    "retention",
    _ERROR,
    "A consumer that stops for longer than the retention loses messages.",
)
RETENTION_BYTES: Final = Kind(
    "retention-bytes",
    _WARNING,
    "A burst deletes old messages at any age: a consumer that is behind loses them.",
)
TOPIC_COMPACTED: Final = Kind(
    "topic-compacted",
    _WARNING,
    "Compaction keeps only the last message of each key: a consumer that is behind"
    " misses the others.",
)
LEDGER_CLEANUP: Final = Kind(
    "ledger-cleanup",
    _ERROR,
    "The last ledger can expire: a new leader then sends records again that are in the"
    " log already.",
)
LEDGER_COMPACTION: Final = Kind(
    "ledger-compaction",
    _WARNING,
    "Old ledgers stay for long: the topic grows.",
)
MAX_MESSAGE_BYTES: Final = Kind(
    "max-message-bytes",
    _ERROR,
    "The topic refuses messages that `stash()` accepts; each of them blocks its key.",
)
PRODUCER_MESSAGE_BYTES: Final = Kind(
    "producer-message-bytes",
    _ERROR,
    "The producer refuses messages that `stash()` accepts; each of them blocks its"
    " key.",
)
PARTITION_GROWTH: Final = Kind(
    "partition-growth",
    _WARNING,
    "If partitions were added while records waited, the records of a key are in two"
    " partitions: consumers can process them out of order.",
)

# The broker, the election and the clients.

BROKER_DEFAULTS: Final = Kind(
    "broker-defaults",
    _WARNING,
    "The broker creates missing topics by itself, and these would not be durable.",
)
INTERNAL_TOPICS: Final = Kind(
    "internal-topics",
    _WARNING,
    "A broker that loses its disk takes consumer offsets, or the outcome of"
    " transactions, with it: consumers repeat or skip messages.",
)
OFFSETS_RETENTION: Final = Kind(
    "offsets-retention",
    _WARNING,
    "Kafka forgets the offsets of a consumer group that stops for longer: it starts at"
    " the beginning or at the end of the topic.",
)
TWO_OUTBOXES: Final = Kind(
    "two-outboxes",
    _ERROR,
    "Two outboxes share one election: one of them is never harvested, or both corrupt"
    " one ledger.",
)
ACKS: Final = Kind(
    "acks",
    _ERROR,
    "Messages count as sent before all replicas in sync have them.",
)
TLS_VERIFICATION: Final = Kind(
    "tls-verification",
    _ERROR,
    "Anybody on the network path can acknowledge messages and drop them, or read and"
    " change them.",
)
CLEAR_TEXT: Final = Kind(
    "clear-text",
    _WARNING,
    "Credentials and messages cross the network without encryption.",
)
DEDUPE_WINDOW: Final = Kind(
    "dedupe-window",
    _WARNING,
    "A consumer that stops for longer processes messages a second time.",
)

# The database.

STANDBY: Final = Kind(
    "standby",
    _ERROR,
    "The database refuses writes: nothing that is sent can be purged, so nobody leads.",
)
SYNCHRONOUS_COMMIT: Final = Kind(
    "synchronous-commit",
    _ERROR,
    "A crash of the server undoes commits: business rows are lost whose messages are"
    " sent already.",
)
FSYNC: Final = Kind(
    "fsync",
    _ERROR,
    "A crash of the host can lose or corrupt any row, and with it the outbox.",
)
FULL_PAGE_WRITES: Final = Kind(
    "full-page-writes",
    _ERROR,
    "A crash of the host can leave half-written pages: rows are lost or corrupt.",
)
TABLE_MISSING: Final = Kind(
    "table-missing",
    _ERROR,
    "What needs the table fails: parking, delays, series, pauses, or consumers.",
)
UNLOGGED_TABLE: Final = Kind(
    "unlogged-table",
    _ERROR,
    "A crash of the server empties the table; standbys do not have it at all.",
)
AUTOVACUUM: Final = Kind(
    "autovacuum",
    _WARNING,
    "Deleted rows stay in the table: it grows, and reading it gets slow.",
)
DEAD_ROWS: Final = Kind(
    "dead-rows",
    _WARNING,
    "Vacuum does not keep up: each page of the outbox takes longer to read.",
)
OLD_TRANSACTION: Final = Kind(
    "old-transaction",
    _WARNING,
    "Vacuum cannot remove rows that were deleted since then; ids that it drew stay"
    " open gaps.",
)
PREPARED_TRANSACTION: Final = Kind(
    "prepared-transaction",
    _WARNING,
    "Vacuum cannot remove rows that were deleted since then; its own messages are not"
    " sent.",
)
REPLICATION_SLOT: Final = Kind(
    "replication-slot",
    _WARNING,
    "The slot keeps WAL until the disk is full and the server stops, or keeps deleted"
    " rows.",
)
SEQUENCE_CACHE: Final = Kind(
    "sequence-cache",
    _ERROR,
    "Ids do not follow the order of commits: messages of a key are sent out of order.",
)
GRANTS: Final = Kind(
    "grants",
    _ERROR,
    "The harvester cannot read, purge or park records: they stay, or are sent again.",
)
POOLER: Final = Kind(
    "pooler",
    _WARNING,
    "Notifications do not pass the pooler: new rows wait for the next poll.",
)

# The examination itself.

UNREACHABLE: Final = Kind(
    "unreachable",
    _ERROR,
    "The service did not answer, or refused: nothing more of it was examined.",
)
NOT_EXAMINED: Final = Kind(
    "not-examined",
    _WARNING,
    "This part was not shown, mostly because a right is missing: it was not examined.",
)

KINDS: Final[tuple[Kind, ...]] = tuple(
    value for value in list(globals().values()) if isinstance(value, Kind)
)
"""All of them, in the order of a report."""
