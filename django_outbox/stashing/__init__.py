"""
Writing messages: one row, many rows, series and delayed messages.

`stash()` inserts on the caller's own connection, inside the transaction that
the caller has opened. Nothing here touches Kafka.
"""

from __future__ import annotations

from .writing import to_json

__all__ = ["to_json"]
