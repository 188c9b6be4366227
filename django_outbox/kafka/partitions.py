"""
The state of partitions in Kafka: topic id, first offset and end offset.

Every request creates a client, since it is only needed when partitions are
assigned.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as DriverTopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from ..exceptions import KafkaUnavailable
from ..message.incoming import PartitionState, TopicPartition
from ..settings.options import OutboxSettings
from .client_errors import ClientErrors
from .clients import answer_of, make
from .config import KafkaConfig, admin_config, named

REQUEST_TIMEOUT: Final = 5.0
"""Seconds for one request to the cluster."""

FIRST: Final[OffsetSpec] = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_END: Final[OffsetSpec] = OffsetSpec.latest()  # type: ignore[no-untyped-call]

_NO_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
"""Sixteen zero bytes: the broker has no topic ids."""

_UNKNOWN: Final = frozenset(
    {"UNKNOWN_TOPIC_OR_PART", "_NOENT", "_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC"}
)
"""Errors of a topic or partition that does not exist or has no leader."""

_MOVED: Final = "NOT_LEADER_FOR_PARTITION"
_RETRY_INTERVAL: Final = 0.05
"""Seconds before a broker that is not the leader yet is asked again."""


class KafkaPartitions:
    """Reads the state of partitions; the adapter of `PartitionStates`."""

    def __init__(self, options: OutboxSettings, *, name: str = "") -> None:
        config = admin_config(options) | named(name)
        self._errors = ClientErrors("partition lookup", action="consume", config=config)
        self._config: KafkaConfig = {**config, **self._errors.callbacks}

    def look(
        self, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, PartitionState]:
        if not partitions:
            return {}
        admin = make(AdminClient, self._config)
        names = sorted({topic for topic, _ in partitions})
        asked = admin.describe_topics(
            TopicCollection(names), request_timeout=REQUEST_TIMEOUT
        )
        ids = {name: _id(found) for name, found in self._known(asked.items())}
        lows = self._offsets(admin, partitions, FIRST)
        highs = self._offsets(admin, partitions, _END)
        known = [at for at in partitions if at[0] in ids]
        if any(at not in lows or at not in highs for at in known):
            raise KafkaUnavailable("A partition has no leader.")
        return {
            at: PartitionState(topic_id=ids[at[0]], low=lows[at], high=highs[at])
            for at in known
        }

    def at_time(
        self, partitions: Sequence[TopicPartition], moment: datetime
    ) -> dict[TopicPartition, int]:
        """
        Return the offsets of the first messages at or after a moment.

        That is the end where no message is so late. Unknown partitions are left out.

        Raises:
            KafkaUnavailable: the cluster does not answer; call again.
        """
        # The ends come first, so that no message that arrives meanwhile is passed.
        ends = self.look(partitions)
        # The protocol gives negative times another meaning.
        milliseconds = max(0, int(moment.timestamp() * 1000))
        admin = make(AdminClient, self._config)
        spec = OffsetSpec.for_timestamp(milliseconds)
        found = self._offsets(admin, [*ends], spec) if ends else {}
        if found.keys() != ends.keys():
            raise KafkaUnavailable("A partition has no leader.")
        return {at: found[at] if found[at] >= 0 else ends[at].high for at in ends}

    def _offsets(
        self, admin: AdminClient, partitions: Sequence[TopicPartition], spec: OffsetSpec
    ) -> dict[TopicPartition, int]:
        asked = {DriverTopicPartition(*at): spec for at in partitions}
        answers = admin.list_offsets(asked, request_timeout=REQUEST_TIMEOUT)
        found = self._known(answers.items())
        return {(at.topic, at.partition): end.offset for at, end in found}

    def _known(
        self,
        answers: Iterable[tuple[Any, Future[Any]]],
    ) -> Iterable[tuple[Any, Any]]:
        """Yield the results; leave out unknown topics and partitions."""
        for asked, future in answers:
            try:
                yield asked, answer_of(future, REQUEST_TIMEOUT)
            except KafkaException as error:
                if error.args[0].name() not in _UNKNOWN:
                    raise self._errors.unavailable(
                        "Cannot look up partitions", error
                    ) from error


def _id(description: Any) -> str:
    text = str(description.topic_id or "")
    return "" if text == _NO_ID else text


def first_and_end(
    consumer: Consumer, at: DriverTopicPartition, *, timeout: float
) -> tuple[int, int]:
    """
    Return the offset at which a partition begins now, and that of its next message.

    The driver does not ask again when the partition has just got another leader.

    Raises:
        KafkaException: a refusal, or no answer in `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    while True:
        left = deadline - time.monotonic()
        try:
            return consumer.get_watermark_offsets(at, timeout=max(0.1, left))
        except KafkaException as error:
            if error.args[0].name() != _MOVED or left <= 0:
                raise
        time.sleep(_RETRY_INTERVAL)
        # The driver learns who leads the partition now.
        consumer.list_topics(at.topic, timeout=max(0.1, left))
