"""
`OutboxError` and its subclasses: every error that django-outbox raises.

`conf.OutboxImproperlyConfigured` is a `ConfigurationError` and Django's own error, too.

OutboxError
├── ConfigurationError            a setting is wrong: names it and the remedy
│   └── WrongOutbox               another outbox uses the same leader topic or group
├── StashError                    a message cannot be written
│   ├── NotInTransaction          no transaction.atomic block is open
│   ├── InvalidMessage            topic, key, value or header break a limit
│   └── SeriesError               a series does not accept the call
│       ├── SeriesUnknown         no series has that name
│       └── SeriesClosed          it was released, was discarded or has expired
├── ConsumingError                a message cannot be consumed
│   ├── InvalidKey                an idempotency key is empty or too long
│   ├── AlreadyOpen               an enclosing block processes the same key
│   ├── RepeatUnnoticed           a block did not check `is_first`
│   ├── ErrorSwallowed            a block caught an error that ended its transaction
│   ├── ClaimHeld                 another process holds the message (retriable)
│   └── StaleOffset               a stored offset would skip messages silently
│       └── OffsetsLost           ... because the database has lost what was stored
├── RegistryUnavailable           the schema registry does not answer (retriable)
├── LakeInUse                     another run of the pipeline holds the lake (retriable)
├── BronzeIncomplete              bronze lacks messages; a rebuild would lose them
├── DatabaseError                 a statement on the outbox's tables failed
│   ├── DatabaseUnavailable       ... because no server answers (retriable)
│   │   ├── DatabaseSlow          ... because it took longer than the time-out
│   │   └── DatabaseReadOnly      ... because the server does not accept writes
│   ├── DatabaseBusy              ... because another session has a lock (retriable)
│   ├── RowInvalid                ... because of the data of a row
│   └── TableMissing              ... because `manage.py migrate` has not run
├── OutOfResources                no more threads, memory or files for this process
└── KafkaError                    a call of Kafka failed
    ├── KafkaUnavailable          no broker answers (retriable)
    ├── TopicMissing              a topic that harvesters need does not exist
    ├── TopicRecreated            a topic was deleted and created again
    ├── RecordsDeleted            Kafka deleted records that ingest had not read
    ├── DeliveryFailed            a record has no proof of delivery (retriable)
    │   ├── RecordPoisoned        the record itself is at fault: a retry fails, too
    │   └── ProducerBroken        the producer has to be replaced
    ├── LedgerInvalid             a record of the ledger topic is not a ledger
    └── LedgerRefused             Kafka did not accept the ledger (retriable)
"""

from __future__ import annotations

import errno
import os
from typing import ClassVar, Final

DISTRIBUTION: Final = "django-outbox-kafka"
"""The name under which pip knows the package `django_outbox`."""


def install_command(extra: str) -> str:
    """Return the command that installs what a feature needs, for a message."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


class OutboxError(Exception):
    """Something went wrong in django-outbox."""

    retriable: ClassVar[bool] = False
    """Whether the same call may succeed later without a change."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip())


class ConfigurationError(OutboxError):
    """A setting of django-outbox is wrong."""


class WrongOutbox(ConfigurationError):
    """Another outbox, or a copy of this one, uses the same leader topic or group."""


class StashError(OutboxError):
    """The message cannot be written to the outbox."""


class NotInTransaction(StashError):
    """stash() must be called inside transaction.atomic()."""


class InvalidMessage(StashError, ValueError):
    """The message breaks a limit of the outbox or of Kafka."""


class SeriesError(StashError):
    """The series does not accept the call."""


class SeriesUnknown(SeriesError):
    """No series has that name."""


class SeriesClosed(SeriesError):
    """The series was released, was discarded or has expired."""


class ConsumingError(OutboxError):
    """The message cannot be consumed."""


class InvalidKey(ConsumingError, ValueError):
    """The idempotency key is empty, too long, or not valid text."""


class AlreadyOpen(ConsumingError):
    """An open once() or apply_once() is in the way of this one."""


class RepeatUnnoticed(ConsumingError):
    """The block did not check `is_first`: it was rolled back."""


class ErrorSwallowed(ConsumingError):
    """The block caught an error that ended its transaction: it was rolled back."""


class ClaimHeld(ConsumingError):
    """Another process holds the claim of the message or the offset of its partition."""

    retriable = True


class StaleOffset(ConsumingError):
    """A stored offset does not belong to its partition: messages would be skipped."""


class OffsetsLost(StaleOffset):
    """The database has lost offsets that were stored: it was restored, for instance."""


class RegistryUnavailable(OutboxError):
    """Schema registry unavailable; no records were processed."""

    retriable = True


class LakeInUse(OutboxError):
    """Another run of the pipeline holds the lake."""

    retriable = True


class BronzeIncomplete(OutboxError):
    """The tables have messages that bronze no longer has; a rebuild would lose them."""


class DatabaseError(OutboxError):
    """A statement on the outbox table failed."""

    waited: float = 0.0
    """Duration of the call until it failed, in seconds."""


class DatabaseUnavailable(DatabaseError):
    """The database does not answer; the outcome of the call is unknown."""

    retriable = True


class DatabaseSlow(DatabaseUnavailable):
    """The server ended a statement that took too long; nothing was done."""


class DatabaseReadOnly(DatabaseUnavailable):
    """The database does not accept writes: it is a standby, or read-only."""


class DatabaseBusy(DatabaseError):
    """Another session holds a lock; the database answers, and nothing was done."""

    retriable = True


class RowInvalid(DatabaseError):
    """A row holds data that cannot be read, or that a column does not accept."""


class TableMissing(DatabaseError):
    """A table of the outbox is missing: run `manage.py migrate`."""


class KafkaError(OutboxError):
    """A call of Kafka failed."""


class KafkaUnavailable(KafkaError):
    """No Kafka broker answers."""

    retriable = True


class TopicMissing(KafkaError):
    """A topic that is needed does not exist."""


class TopicRecreated(KafkaError):
    """A topic was deleted and created again: its offsets mean other records."""


class RecordsDeleted(KafkaError):
    """Kafka has deleted records that were not read yet."""


class DeliveryFailed(KafkaError):
    """A record has no proof of delivery: it may or may not be in the log."""

    retriable = True

    def __init__(self, message: str | None = None, *, code: str = "UNKNOWN") -> None:
        super().__init__(message)
        self.code = code
        """The error's name in Kafka's or librdkafka's list, for machines."""


class RecordPoisoned(DeliveryFailed):
    """The record itself is at fault: every retry fails."""

    retriable = False

    def __init__(
        self,
        message: str | None = None,
        *,
        code: str = "UNKNOWN",
        is_certain: bool = True,
    ) -> None:
        super().__init__(message, code=code)
        self.is_certain = is_certain
        """False if another record of the same batch may be at fault."""


class LedgerInvalid(KafkaError):
    """A record of the ledger topic is not a ledger of an outbox."""


class LedgerRefused(KafkaError):
    """Kafka did not accept the ledger: none of its transaction is visible."""

    retriable = True


class OutOfResources(OutboxError):
    """The system gives this process no more threads, memory or files; it has to end."""


def sqlstate_of(error: Exception) -> str | None:
    """Return the SQLSTATE behind an error of Django; None: no server has sent it."""
    return getattr(error.__cause__, "sqlstate", None)


def says_no_files(text: str) -> bool:
    """Whether a driver's error says that this process may open no more sockets."""
    reasons = (os.strerror(errno.EMFILE), os.strerror(errno.ENFILE))
    return any(reason in text for reason in reasons)


class ProducerBroken(DeliveryFailed):
    """The producer met a fatal error and has to be replaced."""

    @property
    def is_fenced(self) -> bool:
        """Whether another producer has taken over the transactional id."""
        return self.code in {"_FENCED", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED"}
