"""
The Kafka headers of a record.

The last check before the producer: rows can be inserted by plain SQL, so the table
may have topics and headers that `stash()` refuses. Independent of the driver.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from ..exceptions import InvalidMessage, RecordPoisoned
from ..settings.options import OutboxSettings
from .limits import RESERVED_PREFIX, Topics
from .record import UNREADABLE, Record

Headers: TypeAlias = list[tuple[str, str | bytes | None]]
"""Kafka headers in their order: the user's, then ours."""

MESSAGE_ID: Final = "outbox-message-id"
"""The header with the idempotency key for consumers."""

_PREFIX_LENGTH: Final = len(RESERVED_PREFIX)

_KNOWN_NAMES: Final = 1_000
"""Number of header names that are checked only once."""

_UNPAIRED: Final = "The record's header names and values are not pairs of text."


class Envelope:
    """Makes the headers of records, for one outbox."""

    def __init__(self, options: OutboxSettings) -> None:
        self._topics = Topics(options)
        self._sources = _Sources(options)
        # With one cluster the source is constant and needs no lookup.
        is_alone = options.CLUSTERS_COUNT == 1
        self._source = self._sources[0] if is_alone else None
        self._has_leader = options.LEADER_HEADER
        self._good_names: set[str] = set()

    def headers(self, record: Record, leader_id: str) -> Headers:
        """
        Return all headers of a record: the user's, then those of the outbox.

        Raises:
            RecordPoisoned: its topic, or a header of the user, is not allowed.
        """
        # Unpacked once: this runs for tens of thousands of records a second.
        id_, topic, _, _, names, values, _, message_id, created_at, cluster, _ = record
        if topic not in self._topics.known:
            self._check_topic(topic)
        headers: Headers = [
            (MESSAGE_ID, message_id),
            ("outbox-id", str(id_)),
            self._source or self._sources[cluster],
            ("outbox-created-at", created_at),
        ]
        if self._has_leader:
            headers.append(("outbox-leader-id", leader_id))
        if names or values:
            return self._user_headers(names, values) + headers
        return headers

    def _check_topic(self, topic: str) -> None:
        try:
            self._topics.check(topic)
        except InvalidMessage as error:
            raise RecordPoisoned(str(error), code="INVALID_TOPIC") from error

    def _user_headers(self, names: list[str], values: list[str | None]) -> Headers:
        # goharvest's own table has no constraints: an array may contain arrays.
        if len(names) != len(values):
            if names[:1] == [UNREADABLE]:
                raise RecordPoisoned(names[1], code="ROW_UNREADABLE")
            raise RecordPoisoned(_UNPAIRED, code="INVALID_HEADERS")
        try:
            are_good = self._good_names.issuperset(names)
        except TypeError:
            # A nested array is not hashable.
            are_good = False
        if not are_good:
            for name in names:
                self._check_name(name)
        for text in values:
            if type(text) is not str and text is not None:
                raise RecordPoisoned(_UNPAIRED, code="INVALID_HEADERS")
        # The lengths are equal; `strict=True` takes half as long again.
        return [*zip(names, values)]  # noqa: B905

    def _check_name(self, name: str) -> None:
        if type(name) is not str:
            raise RecordPoisoned(_UNPAIRED, code="INVALID_HEADERS")
        if name[:_PREFIX_LENGTH].lower() == RESERVED_PREFIX:
            message = f"A header of the record begins with {RESERVED_PREFIX!r}."
            raise RecordPoisoned(message, code="RESERVED_HEADER")
        # Bounded, because names may be generated from data.
        if len(self._good_names) < _KNOWN_NAMES:
            self._good_names.add(name)


class _Sources(dict[int, tuple[str, str]]):
    """The header outbox-source by the cluster in which a record was written."""

    def __init__(self, options: OutboxSettings) -> None:
        super().__init__()
        self._options = options

    def __missing__(self, cluster: int) -> tuple[str, str]:
        header = self[cluster] = ("outbox-source", self._options.source_of(cluster))
        return header


def texts(headers: Any) -> dict[str, str]:
    """Decode the headers of a message; the last one of each name counts."""
    return {
        name: value.decode("utf-8", "replace")
        for name, value in headers or ()
        if isinstance(value, bytes)
    }
