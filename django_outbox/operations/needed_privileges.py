"""The privileges without which a harvester fails, one by one, to look them up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..postgres.database_facts import Privilege
from ..settings.options import OutboxSettings

RELEASED: Final = (
    *("kafka_topic", "kafka_key", "kafka_value", "kafka_value_bytes"),
    *("kafka_header_keys", "kafka_header_values", "message_id"),
    *("kafka_partition", "cluster_id"),
)
"""Columns of a staged message that moves to the outbox, where it gets a new time."""

MOVED: Final = ("id", "create_time", *RELEASED, "attempts", "last_error")
"""Columns of a row that moves to the parked table or to the archive."""

PRUNED: Final = ("consumer", "key", "processed_at")
"""Columns by which old keys of consumers are found."""


def needed_privileges(options: OutboxSettings) -> list[Privilege]:
    """Return what the harvester's role needs with these settings."""
    return list(_needed(options))


def _needed(options: OutboxSettings) -> Iterator[Privilege]:
    yield Privilege("", "USAGE", kind="schema")
    yield Privilege("", "SELECT")
    yield Privilege("", "DELETE")
    for column in ("leader_id", "attempts", "last_error"):
        yield Privilege("", "UPDATE", column)
    for column in RELEASED:
        yield Privilege("", "INSERT", column)
    yield Privilege("_id_seq", "USAGE", kind="ids")
    for suffix in ("_parked", *(["_archive"] if options.ARCHIVE else [])):
        for column in MOVED:
            yield Privilege(suffix, "INSERT", column)
    if options.ARCHIVE:
        yield Privilege("_archive_tend", "EXECUTE", kind="function")
    yield Privilege("_staged", "SELECT")
    yield Privilege("_staged", "DELETE")
    yield Privilege("_staged", "UPDATE", "not_before")
    yield Privilege("_series", "SELECT")
    yield Privilege("_series", "DELETE")
    for column in ("state", "closed_at"):
        yield Privilege("_series", "UPDATE", column)
    yield Privilege("_identity", "SELECT")
    yield Privilege("_pauses", "SELECT")
    if options.PROCESSED_RETENTION:
        for column in PRUNED:
            yield Privilege("_processed", "SELECT", column)
        yield Privilege("_processed", "DELETE")
