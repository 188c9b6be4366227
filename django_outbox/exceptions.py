"""
Every error that django-outbox raises, without Django.

OutboxError
├── ConfigurationError            a setting is wrong: names it and the cure
│   ├── (conf.OutboxImproperlyConfigured, which Django knows too)
│   └── WrongOutbox               the names of the election are another outbox's
├── StashError                    a message cannot be written
│   ├── NotInTransaction          no transaction.atomic block is open
│   ├── InvalidMessage            topic, key, value or header break a limit
│   └── SeriesError               a series cannot do what is asked
│       ├── SeriesUnknown         there is none of that name
│       └── SeriesClosed          it was released, was discarded or has expired
├── ConsumingError                a message cannot be consumed as asked
│   ├── InvalidKey                what should be unique is empty or too long
│   ├── AlreadyOpen               the same key is being processed further out
│   ├── StaleOffset               a stored offset would skip messages silently
│   └── RepeatUnnoticed           a block ran again and did not ask whether it may
├── RegistryUnavailable           the schema registry gives no schema now (retriable)
├── DatabaseError                 the outbox table did not do what was asked
│   ├── DatabaseUnavailable       ... and may do it later (retriable)
│   ├── DatabaseBusy              ... since a lock was in the way (retriable)
│   └── TableMissing              ... since `manage.py migrate` has not run there
└── KafkaError                    the cluster did not do what was asked
    ├── KafkaUnavailable          no broker answers (retriable)
    ├── TopicMissing              a topic of ours does not exist
    ├── ProducerQueueFull         the local queue is full: poll, then again
    ├── LedgerInvalid             a record of the ledger topic is no ledger of ours
    ├── LedgerRefused             Kafka did not take the ledger (retriable)
    └── DeliveryFailed            a record has no proof of delivery (retriable)
        ├── RecordPoisoned        this record fails again whatever we do
        └── ProducerBroken        the producer is of no further use
"""

from __future__ import annotations

from typing import ClassVar, Final

DISTRIBUTION: Final = "django-outbox-kafka"
"""The name under which pip knows the package `django_outbox`."""


def install_command(extra: str) -> str:
    """Return the command that installs what a feature needs, for a message."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


class OutboxError(Exception):
    """Something went wrong in django-outbox."""

    retriable: ClassVar[bool] = False
    """Whether the same call may succeed later without anybody's help."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip())


class ConfigurationError(OutboxError):
    """A setting of django-outbox is wrong."""


class WrongOutbox(ConfigurationError):
    """Another outbox, or a copy of this one, leads under the same names."""


class StashError(OutboxError):
    """The message cannot be written to the outbox."""


class NotInTransaction(StashError):
    """stash() must be called inside transaction.atomic()."""


class InvalidMessage(StashError, ValueError):
    """The message breaks a limit of the outbox or of Kafka."""


class SeriesError(StashError):
    """The series cannot do what is asked."""


class SeriesUnknown(SeriesError):
    """There is no series of that name."""


class SeriesClosed(SeriesError):
    """The series was released, was discarded or has expired."""


class ConsumingError(OutboxError):
    """The message cannot be consumed as asked."""


class InvalidKey(ConsumingError, ValueError):
    """The idempotency key is empty, too long, or no text that a database can hold."""


class AlreadyOpen(ConsumingError):
    """A once() of the same consumer and key is open around this one."""


class RepeatUnnoticed(ConsumingError):
    """The block of a repeat did not look at `is_first`: it was rolled back."""


class ErrorSwallowed(ConsumingError):
    """The transaction was spoilt by an error that was caught: it was rolled back."""


class StaleOffset(ConsumingError):
    """A stored offset does not belong to its partition: messages would be skipped."""


class RegistryUnavailable(OutboxError):
    """The schema registry gives no schema now; no value was judged without it."""

    retriable = True


class DatabaseError(OutboxError):
    """The outbox table did not do what was asked."""

    waited: float = 0.0
    """Seconds that the call had lasted when it failed."""


class DatabaseUnavailable(DatabaseError):
    """The database cannot be reached now; the outcome of the call is unknown."""

    retriable = True


class DatabaseBusy(DatabaseError):
    """Another session holds a lock; the database answers, and nothing was done."""

    retriable = True


class TableMissing(DatabaseError):
    """A table of the outbox is missing: run `manage.py migrate`."""


class KafkaError(OutboxError):
    """The Kafka cluster did not do what was asked."""


class KafkaUnavailable(KafkaError):
    """No Kafka broker answers now."""

    retriable = True


class TopicMissing(KafkaError):
    """A topic that the harvesters need does not exist and may not be created."""


class ProducerQueueFull(KafkaError):
    """The producer's local queue is full; poll it, then produce again."""

    retriable = True


class DeliveryFailed(KafkaError):
    """A record has no proof of delivery: it may or may not be in the log."""

    retriable = True

    def __init__(self, message: str | None = None, *, code: str = "UNKNOWN") -> None:
        super().__init__(message)
        self.code = code
        """The error's name in Kafka's or librdkafka's list, for machines."""


class RecordPoisoned(DeliveryFailed):
    """The record is at fault: it fails again whatever the cluster's state."""

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
        """False while the fault may be a neighbour's in the same batch."""


class LedgerInvalid(KafkaError):
    """A record of the ledger topic is not a ledger that an outbox has written."""


class LedgerRefused(KafkaError):
    """The ledger's topic does not take the ledger: nothing of it can be visible."""

    retriable = True


class ProducerBroken(DeliveryFailed):
    """The producer met a fatal error: destroy it and build another."""

    @property
    def is_fenced(self) -> bool:
        """Whether another producer has taken the transactional id over."""
        return self.code in {"_FENCED", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED"}
