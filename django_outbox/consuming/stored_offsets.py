"""
Checks that a stored offset still belongs to its partition.

Kafka forgets the offsets of a deleted topic; a database does not. After the topic
was created again, or lost messages, a stored offset would skip messages
silently. Therefore it is compared with the partition before use.
"""

from __future__ import annotations

from typing import NamedTuple

from ..exceptions import StaleOffset
from ..message.incoming import BEGINNING, PartitionState, TopicPartition


class StoredOffset(NamedTuple):
    """A group's progress in a partition, as stored in the database."""

    next_offset: int
    """The first offset that is not processed yet; 0 = read from the beginning."""
    topic_id: str
    """Kafka's id of the topic when the offset was stored; "" = unknown."""


def start_of(
    topic_partition: TopicPartition,
    stored: StoredOffset,
    found: PartitionState | None,
    *,
    group: str,
) -> int:
    """
    Return the offset at which a group continues in a partition.

    Args:
        found: None when Kafka does not know the partition now.

    Raises:
        StaleOffset: messages would be skipped; the text says why and what to do.
    """
    if not stored.next_offset:
        return BEGINNING
    if found is not None and (why := _mismatch(stored, found)):
        topic, partition = topic_partition
        raise StaleOffset(
            f"OFFSETS: group {group!r} is stored at offset {stored.next_offset} of "
            f"{topic}/{partition}, but {why}. To read the topic from its beginning "
            "(messages processed within the dedupe window are skipped): python "
            f"manage.py outbox rewind {group} {topic}"
        )
    return stored.next_offset


def _mismatch(stored: StoredOffset, found: PartitionState) -> str | None:
    if stored.topic_id and found.topic_id and stored.topic_id != found.topic_id:
        return "the topic was deleted and created again since"
    if stored.next_offset > found.high:
        return (
            f"the partition ends at {found.high}: the topic was created again, or "
            "lost messages"
        )
    if stored.next_offset < found.low:
        return (
            f"the partition begins at {found.low}: messages in between were deleted "
            "before this group read them"
        )
    return None
