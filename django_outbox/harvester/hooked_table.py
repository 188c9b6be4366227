"""
The table as a relay reads it, each record passed through the setting MIDDLEWARE.

That is the thread that reads: neither the one that sends nor the one that settles waits
for what an application does. The rows in the table stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..message.middleware import Middleware, produced
from ..message.record import Record, Sweep

if TYPE_CHECKING:
    from .adapters import ReadHarvest


class HookedTable:
    """
    Wraps the port `ReadTable`.

    Args:
        table: the table.
        middleware: what does something where records are sent.
    """

    def __init__(self, table: ReadHarvest, middleware: Sequence[Middleware]) -> None:
        self._table = table
        self._middleware = middleware
        self.begin = table.begin
        self.reset = table.reset
        self.pauses = table.pauses
        self.ping = table.ping
        self.timeline = table.timeline
        self.close = table.close

    def mark(
        self, leader_id: str, *, limit: int, sweep: Sweep | None = None
    ) -> list[Record]:
        """Read a page; see the port. A record whose hook fails is poison."""
        found = self._table.mark(leader_id, limit=limit, sweep=sweep)
        return [produced(self._middleware, record) for record in found]
