"""
Sends the messages of consumers: dead letters, and the output of transforms.

`KafkaDeadLetters` sends one message and waits for it. `KafkaTransforms` sends
many, with the offsets of their input, in one Kafka transaction.

librdkafka repeats commit requests, and a late repetition can hit the next
transaction. Therefore any error or disconnect during a transaction ends the
producer. A new one with the same transactional id ends open transactions.

A client that nobody uses keeps what it has to tell of lost connections, without a
limit. Therefore `rest()` closes it after a while, and the next message makes another.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from math import inf
from typing import Final, Protocol

from confluent_kafka import KafkaError as DriverError
from confluent_kafka import KafkaException, Message
from confluent_kafka import Producer as Client
from confluent_kafka import TopicPartition as DriverTopicPartition

from ..exceptions import KafkaUnavailable
from ..message.incoming import OutgoingMessage, TopicPartition
from ..settings.options import OutboxSettings
from .client_errors import ClientErrors
from .clients import RAISED, driver_error, drop, init_transactions, make, serve
from .config import KafkaConfig, named, producer_config, transform_config
from .destinations import Destinations
from .failures import failure, no_offset
from .queueing import queue

STEP_TIMEOUT: Final = 10.0
"""Seconds for one step of a transaction."""

FLUSH_GRACE: Final = 1.0
"""Seconds beyond the delivery time-out for the last delivery reports."""

IDLE_TIMEOUT: Final = 60.0
"""Seconds without a message after which a client is closed."""

MAX_MESSAGE_BYTES: Final = 10 * 1024 * 1024
"""Bytes of a message before compression, unless `message.max.bytes` is set: larger ones
could not always be sent within the delivery time-out."""

_FOR_DEAD_LETTERS: Final[KafkaConfig] = {
    # The client accepts 1 MB by default, and a broker may accept more.
    "message.max.bytes": MAX_MESSAGE_BYTES,
    # Topics limit compressed bytes, and the original may have been compressed.
    "compression.type": "gzip",
}
"""Defaults that PRODUCER_KAFKA and KAFKA may override."""


class Member(Protocol):
    """The consumer whose offsets a transaction sends."""

    def group_metadata(self) -> object:
        """Return the metadata that fences it by the group's generation."""


class KafkaDeadLetters:
    """An idempotent producer of single messages; created at first use."""

    def __init__(self, options: OutboxSettings, *, name: str = "") -> None:
        self._config = producer_config(options, _FOR_DEAD_LETTERS) | named(name)
        self._flush_timeout = options.DELIVERY_TIMEOUT + FLUSH_GRACE
        self._errors = ClientErrors(
            "dead letter producer", action="consume", config=self._config
        )
        self._client: Client | None = None
        self._used_at = 0.0
        """Monotonic seconds."""

    def send(self, message: OutgoingMessage) -> None:
        if self._client is None:
            self._client = make(Client, {**self._config, **self._errors.callbacks})
        client, self._client = self._client, None
        try:
            _deliver(client, [message], self._flush_timeout)
        except RAISED as error:
            drop(client)
            raise _broken(self._errors, "Dead letter not sent", error) from error
        except BaseException:
            # A late copy must not arrive after a repetition.
            drop(client)
            raise
        self._client, self._used_at = client, time.monotonic()
        self._errors.recovered()

    def rest(self) -> None:
        if time.monotonic() - self._used_at >= IDLE_TIMEOUT:
            self._client = None

    def close(self) -> None:
        self._client = None


class KafkaTransforms:
    """
    A transactional producer; one object serves one thread.

    Args:
        options: the settings of the outbox.
        transactional_id: unique among running processes.
        member: the consumer whose offsets it sends.
    """

    def __init__(
        self, options: OutboxSettings, *, transactional_id: str, member: Member
    ) -> None:
        own = {"message.max.bytes": MAX_MESSAGE_BYTES}
        self._config = transform_config(options, transactional_id, own)
        self._member = member
        self._flush_timeout = options.DELIVERY_TIMEOUT + FLUSH_GRACE
        self._errors = ClientErrors(
            "transform producer", action="consume", config=self._config
        )
        self._open: tuple[Client, Destinations] | None = None
        self._used_at = 0.0
        """Monotonic seconds."""

    def send(
        self,
        messages: Sequence[OutgoingMessage],
        offsets: Mapping[TopicPartition, int],
        token: str,
    ) -> None:
        client, destinations = is_open = self._open or self._made()
        self._open = None
        error_count = self._errors.count
        try:
            for message in messages:
                destinations.check(message)
            client.begin_transaction()
            _deliver(client, messages, self._flush_timeout)
            client.send_offsets_to_transaction(
                [
                    DriverTopicPartition(*at, offset, metadata=token)
                    for at, offset in offsets.items()
                ],
                self._member.group_metadata(),
                STEP_TIMEOUT,
            )
            client.commit_transaction(STEP_TIMEOUT)
            # Serve the callbacks of errors during the commit.
            client.poll(0)
        except RAISED as error:
            drop(client)
            raise _broken(self._errors, "Transaction failed", error) from error
        except BaseException:
            drop(client)
            raise
        if self._errors.count == error_count:
            self._open, self._used_at = is_open, time.monotonic()
            self._errors.recovered()

    def renew(self) -> None:
        self._open, self._used_at = self._made(), time.monotonic()

    def rest(self) -> None:
        if time.monotonic() - self._used_at >= IDLE_TIMEOUT:
            self._open = None

    def close(self) -> None:
        self._open = None

    def _made(self) -> tuple[Client, Destinations]:
        client = make(Client, {**self._config, **self._errors.callbacks})
        try:
            init_transactions(client, STEP_TIMEOUT)
        except KafkaException as error:
            serve(client)
            raise self._errors.unavailable(
                "Cannot start transactions", error
            ) from error
        return client, Destinations(client)


def _broken(errors: ClientErrors, what: str, error: Exception) -> KafkaUnavailable:
    """Return why a client cannot be used any more; another one may work."""
    cause = driver_error(error)
    if cause is None:
        return KafkaUnavailable("The Kafka client had a fatal error.")
    return errors.unavailable(what, KafkaException(cause))


def _deliver(
    client: Client, messages: Sequence[OutgoingMessage], timeout: float
) -> None:
    """
    Send messages and wait until each is in the log.

    Raises:
        DeliveryFailed: the first error, if one is not.
    """
    errors: list[Exception] = []
    is_alone = len(messages) == 1

    def report(error: DriverError | None, message: Message) -> None:
        if error is not None:
            errors.append(failure(error, is_alone=is_alone))
        elif message.offset() is None:
            errors.append(no_offset())

    for message in messages:
        partition = -1 if message.partition is None else message.partition
        queued = (message.topic, message.value, message.key, partition, report)
        queue(client, queued, message.headers, until=inf)
    if client.flush(timeout):
        raise KafkaUnavailable("Kafka did not acknowledge every message in time.")
    if errors:
        # Its own frame must not keep it, and with it the client.
        raise errors.pop(0)
