"""
What consumers send by themselves: dead letters, and the output of transforms.

`KafkaDeadLetters` sends one letter and waits for it. `KafkaTransforms` sends
many, with the offsets of what they were made of, in one Kafka transaction.

librdkafka repeats a commit by itself, and a repeated one that comes late can
hit the next transaction. Therefore any trouble in a transaction, and any
disconnect during it, ends the producer; a new one under the same
transactional id makes an end of whatever is open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from confluent_kafka import KafkaError as DriverError
from confluent_kafka import KafkaException, Message
from confluent_kafka import Producer as Client
from confluent_kafka import TopicPartition as DriverTopicPartition

from ..exceptions import KafkaUnavailable
from ..message.incoming import OutgoingMessage, TopicPartition
from ..settings.options import OutboxSettings
from .client_errors import ClientErrors, drop, serve
from .clients import make
from .config import KafkaConfig, producer_config, transform_config
from .destinations import Destinations
from .failures import failure, no_offset

PATIENCE: Final = 10.0
"""Seconds for one step of a transaction."""

LARGEST: Final = 10 * 1024 * 1024
"""Bytes of a dead letter before it is compressed, unless `message.max.bytes` says
otherwise: more could not always be sent within the delivery timeout."""

_FOR_DEAD_LETTERS: Final[KafkaConfig] = {
    # The client accepts 1 MB by default, and a broker may accept more.
    "message.max.bytes": LARGEST,
    # A topic's limit counts compressed bytes, and what came may have been compressed.
    "compression.type": "gzip",
}
"""Defaults that PRODUCER_KAFKA and KAFKA may override."""


class Member(Protocol):
    """What a transaction wants to know of the consumer."""

    def group_metadata(self) -> object:
        """What fences it by the group's generation."""


class KafkaDeadLetters:
    """An idempotent producer for single letters; made at first use."""

    def __init__(self, options: OutboxSettings, *, name: str = "") -> None:
        self._config = _FOR_DEAD_LETTERS | producer_config(options)
        if name:
            self._config["client.id"] = name
        self._patience = options.DELIVERY_TIMEOUT + 1.0
        self._trouble = ClientErrors(
            "producer of dead letters", action="consume", config=self._config
        )
        self._client: Client | None = None

    def send(self, letter: OutgoingMessage) -> None:
        if self._client is None:
            self._client = make(Client, {**self._config, **self._trouble.callbacks})
        client, self._client = self._client, None
        try:
            _deliver(client, [letter], self._patience)
        except BaseException:
            # A letter that is late must not come after it was sent again.
            drop(client)
            raise
        self._client = client
        self._trouble.end()

    def close(self) -> None:
        self._client = None


class KafkaTransforms:
    """
    A transactional producer; one object serves one thread.

    Args:
        options: the settings of the outbox.
        transactional_id: of one process and of no other that runs.
        member: the consumer whose offsets it sends.
    """

    def __init__(
        self, options: OutboxSettings, *, transactional_id: str, member: Member
    ) -> None:
        self._config = {
            "message.max.bytes": LARGEST,
            **transform_config(options, transactional_id),
        }
        self._member = member
        self._patience = options.DELIVERY_TIMEOUT + 1.0
        self._trouble = ClientErrors(
            "producer of transformed messages", action="consume", config=self._config
        )
        self._open: tuple[Client, Destinations] | None = None

    def send(
        self,
        letters: Sequence[OutgoingMessage],
        positions: Mapping[TopicPartition, int],
        token: str,
    ) -> None:
        client, destinations = is_open = self._open or self._made()
        self._open = None
        troubles = self._trouble.count
        try:
            for letter in letters:
                destinations.check(letter)
            client.begin_transaction()
            _deliver(client, letters, self._patience)
            client.send_offsets_to_transaction(
                [
                    DriverTopicPartition(*place, offset, metadata=token)
                    for place, offset in positions.items()
                ],
                self._member.group_metadata(),
                PATIENCE,
            )
            client.commit_transaction(PATIENCE)
        except KafkaException as error:
            drop(client)
            raise self._trouble.unavailable("The transaction", error) from error
        except SystemError as error:
            drop(client)
            raise KafkaUnavailable("The client met with a fatal error.") from error
        except BaseException:
            drop(client)
            raise
        if self._trouble.count == troubles:
            self._open = is_open
            self._trouble.end()

    def renew(self) -> None:
        self._open = self._made()

    def close(self) -> None:
        self._open = None

    def _made(self) -> tuple[Client, Destinations]:
        client = make(Client, {**self._config, **self._trouble.callbacks})
        try:
            client.init_transactions(PATIENCE)
        except KafkaException as error:
            serve(client)
            raise self._trouble.unavailable("The transaction", error) from error
        return client, Destinations(client)


def _deliver(
    client: Client, letters: Sequence[OutgoingMessage], patience: float
) -> None:
    """
    Send letters and wait until each is in the log.

    Raises:
        DeliveryFailed: the first of them that is not.
    """
    errors: list[Exception] = []
    is_alone = len(letters) == 1

    def report(error: DriverError | None, message: Message) -> None:
        if error is not None:
            errors.append(failure(error, is_alone=is_alone))
        elif message.offset() is None:
            errors.append(no_offset())

    for letter in letters:
        try:
            _produce(client, letter, report)
        except KafkaException as error:
            raise failure(error.args[0], is_alone=True) from error
    if client.flush(patience):
        raise KafkaUnavailable("Kafka has not acknowledged everything in time.")
    if errors:
        raise errors[0]


def _produce(
    client: Client,
    letter: OutgoingMessage,
    report: Callable[[DriverError | None, Message], None],
) -> None:
    partition = -1 if letter.partition is None else letter.partition
    while True:
        try:
            client.produce(
                letter.topic,
                letter.value,
                letter.key,
                partition,
                report,
                headers=letter.headers,
            )
        except BufferError:
            client.poll(0.1)
        else:
            return
