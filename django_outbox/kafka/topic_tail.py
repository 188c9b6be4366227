"""
Reads the last messages of a topic up to its end, without joining a group.

For people who look at a topic: it commits nothing, and disturbs no consumer.
"""

from __future__ import annotations

import time
from collections.abc import Container, Iterator, Mapping
from contextlib import closing
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from confluent_kafka import KafkaError as DriverError

from ..exceptions import KafkaUnavailable, TopicMissing
from ..message.incoming import ConsumedMessage
from ..settings.kafka_rules import servers_of
from ..settings.options import OutboxSettings
from .client_errors import SILENT
from .clients import make
from .config import reader_config
from .conversion import consumed
from .partitions import first_and_end

ANSWER_TIMEOUT: Final = 10.0
"""Seconds for the broker to answer a question, or to send the next message."""


class LastMessages(NamedTuple):
    """The last messages of a topic."""

    messages: list[ConsumedMessage]
    """In the order of their partitions and offsets."""
    is_whole: bool
    """Whether these are all that the topic has."""


def last_messages(options: OutboxSettings, topic: str, *, limit: int) -> LastMessages:
    """
    Return the committed messages among the last `limit` offsets of each partition.

    Raises:
        TopicMissing: there is no such topic, or this client may not see it.
        KafkaUnavailable: the broker does not answer.
    """
    client = make(Consumer, {**reader_config(options), **SILENT})
    with closing(client):
        try:
            spans, is_whole = _last(client, topic, limit)
            messages = sorted(
                _read(client, topic, spans),
                key=lambda message: (message.partition, message.offset),
            )
            return LastMessages(messages, is_whole)
        except KafkaException as error:
            raise KafkaUnavailable(_why(options, topic, error)) from error


def message_at(
    options: OutboxSettings, topic: str, partition: int, offset: int
) -> ConsumedMessage | None:
    """
    Return one message; None: the topic does not have it any more.

    Raises:
        TopicMissing, KafkaUnavailable: as above.
    """
    client = make(Consumer, {**reader_config(options), **SILENT})
    with closing(client):
        try:
            if partition not in _partitions(client, topic):
                return None
            at = TopicPartition(topic, partition, offset)
            low, high = first_and_end(client, at, timeout=ANSWER_TIMEOUT)
            if not low <= offset < high:
                return None
            spans = {partition: (offset, high)}
            found = next(_read(client, topic, spans), None)
        except KafkaException as error:
            raise KafkaUnavailable(_why(options, topic, error)) from error
    return found if found is not None and found.offset == offset else None


def _why(options: OutboxSettings, topic: str, error: KafkaException) -> str:
    servers = servers_of(options.KAFKA)
    return f"Cannot read {topic!r} from Kafka at {servers}: {error.args[0].str()}."


def _partitions(client: Consumer, topic: str) -> list[int]:
    found = client.list_topics(topic, timeout=ANSWER_TIMEOUT).topics[topic]
    if found.error is not None:
        raise TopicMissing(f"Cannot read the topic {topic!r}: {found.error.str()}")
    return sorted(found.partitions)


def _last(
    client: Consumer, topic: str, limit: int
) -> tuple[dict[int, tuple[int, int]], bool]:
    """Return the last offsets by partition, and whether that is the whole topic."""
    spans, is_whole = {}, True
    for partition in _partitions(client, topic):
        at = TopicPartition(topic, partition)
        low, high = first_and_end(client, at, timeout=ANSWER_TIMEOUT)
        if low < high:
            spans[partition] = (max(low, high - limit), high)
            is_whole = is_whole and high - limit <= low
    return spans, is_whole


def _read(
    client: Consumer, topic: str, spans: Mapping[int, tuple[int, int]]
) -> Iterator[ConsumedMessage]:
    """Yield the messages from a first offset of each partition up to an end."""
    left = {partition: end for partition, (_, end) in spans.items()}
    client.assign([TopicPartition(topic, n, first) for n, (first, _) in spans.items()])
    until = time.monotonic() + ANSWER_TIMEOUT
    while left:
        message = client.poll(0.1)
        if message is None or not _is_of(message, left):
            if time.monotonic() > until:
                raise KafkaUnavailable("Kafka sent no message and no end of the topic.")
            continue
        until = time.monotonic() + ANSWER_TIMEOUT
        partition, offset = message.partition() or 0, message.offset() or 0
        end, is_end = left[partition], message.error() is not None
        # Others may be coming faster than the client meets the end; and where a
        # transaction's marker is the last, it meets only that.
        if is_end or offset + 1 >= end:
            del left[partition]
        if not is_end and offset < end:
            yield consumed(message)


def _is_of(message: Message, partitions: Container[int | None]) -> bool:
    """Whether a message, or an end, is of one of these; raise an error of Kafka."""
    error = message.error()
    if error is None or error.code() == DriverError._PARTITION_EOF:
        return message.partition() in partitions
    if error.retriable():
        return False
    raise KafkaException(error)
