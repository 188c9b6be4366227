"""
Writing messages: one row, many rows, series and delayed messages.

All calls write on the caller's own connection, inside the transaction that the
caller has opened. Nothing here touches Kafka. `writing.py` inserts into the outbox;
`staging.py` inserts what waits for its series (`series.py`) or for its time, and
`schedule.py` checks the options of both. `transaction.py` holds what all of them use.
"""

from __future__ import annotations

from .writing import to_json

__all__ = ["to_json"]
