"""
The name under which writers tell the harvester of new rows, with NOTIFY.

`stashing/writing.py` notifies this channel and `postgres/listening.py` listens to it.
"""

from __future__ import annotations

from typing import Final

MAX_BYTES: Final = 63
"""Of a channel's name: PostgreSQL cuts an identifier there."""


def channel_of(table: str) -> str:
    """
    Return the channel of an outbox table: its name without the schema.

    A writer may find the table by its search path, and does not know the
    schema that the harvester was given. Tables of one name in two schemas
    share a channel, and each harvester looks once more than it has to.
    """
    name = table.rpartition(".")[2]
    return name.encode()[:MAX_BYTES].decode(errors="ignore")
