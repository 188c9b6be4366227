"""The channel on which writers notify the harvester of new rows (setting NOTIFY)."""

from __future__ import annotations

from typing import Final

MAX_BYTES: Final = 63
"""PostgreSQL truncates longer identifiers."""


def channel_of(table: str) -> str:
    """
    Return the channel of an outbox table: its name without the schema.

    Writers may find the table through the search path, without its schema. Tables of
    one name in two schemas share a channel; a harvester that is notified of the other
    table polls its own one in vain, which is harmless.
    """
    name = table.rpartition(".")[2]
    return name.encode()[:MAX_BYTES].decode(errors="ignore")
