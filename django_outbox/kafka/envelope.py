"""
What Kafka gets of a record: the headers, or the reason why it gets none.

The last gate before the producer. Rows can be inserted by plain SQL, so what
`stash()` refuses can still be in the table. It knows no driver; the fake
producer of `testing/` uses it too.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from ..exceptions import InvalidMessage, RecordPoisoned
from ..limits import RESERVED_PREFIX, Topics
from ..options import OutboxSettings
from ..records import Record

Headers: TypeAlias = list[tuple[str, str | bytes | None]]
"""Kafka headers in their order: the user's, then ours."""

MESSAGE_ID: Final = "outbox-message-id"
"""The header that tells consumers which message it is."""

_PREFIX_LENGTH: Final = len(RESERVED_PREFIX)

_UNPAIRED: Final = "The record's header names and values are no pairs of text."


class Envelope:
    """Puts records into their headers, for one outbox."""

    def __init__(self, options: OutboxSettings) -> None:
        self._topics = Topics(options)
        self._sources = _Sources(options)
        # One cluster sends all under one name, and looks up nothing.
        is_alone = options.CLUSTERS_COUNT == 1
        self._source = self._sources[0] if is_alone else None
        self._has_leader = options.LEADER_HEADER

    def headers(self, record: Record, leader_id: str) -> Headers:
        """
        Return all headers of a record, as the operator contract lists them.

        Raises:
            RecordPoisoned: its topic or a header of its own may not be sent.
        """
        try:
            self._topics.check(record.topic)
        except InvalidMessage as error:
            raise RecordPoisoned(str(error), code="INVALID_TOPIC") from error
        headers: Headers = []
        if record.header_keys or record.header_values:
            headers += _own_headers(record)
        headers += (
            (MESSAGE_ID, record.message_id),
            ("outbox-id", str(record.id)),
            self._source or self._sources[record.cluster_id],
            ("outbox-created-at", record.created_at),
        )
        if self._has_leader:
            headers.append(("outbox-leader-id", leader_id))
        return headers


class _Sources(dict[int, tuple[str, str]]):
    """The header outbox-source by the cluster in which a record was written."""

    def __init__(self, options: OutboxSettings) -> None:
        super().__init__()
        self._options = options

    def __missing__(self, origin: int) -> tuple[str, str]:
        header = self[origin] = ("outbox-source", self._options.source_of(origin))
        return header


def texts(headers: Any) -> dict[str, str]:
    """Read what the driver gives of a message's headers; the last of a name counts."""
    return {
        name: value.decode("utf-8", "replace")
        for name, value in headers or ()
        if isinstance(value, bytes)
    }


def _own_headers(record: Record) -> Headers:
    names, values = record.header_keys, record.header_values
    pairs: Headers = []
    # goharvest's own table checks nothing, and an array may hold arrays.
    if len(names) != len(values):
        raise RecordPoisoned(_UNPAIRED, code="INVALID_HEADERS")
    for name, value in zip(names, values, strict=True):
        if type(name) is not str or not (value is None or type(value) is str):
            raise RecordPoisoned(_UNPAIRED, code="INVALID_HEADERS")
        if name[:_PREFIX_LENGTH].lower() == RESERVED_PREFIX:
            message = f"A header of the record begins with {RESERVED_PREFIX!r}."
            raise RecordPoisoned(message, code="RESERVED_HEADER")
        pairs.append((name, value))
    return pairs
