"""
MP/R with its marks in memory, behind a pooler that survives a failover of the database.

Committed rows are lost, purged ones are back, and ids are given again, while no
connection breaks. The log and the table are compared by message ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_outbox.exceptions import DeliveryFailed
from django_outbox.message.record import Record
from django_outbox.relay.memory_marks import MemoryMarks

from .broker import Broker, Request
from .ledger_connection import LedgerConnection
from .ledger_promises import LedgerPromises
from .ledger_table import LedgerTable
from .ledger_writers import LedgerWriters
from .process import Process
from .remembered import MarkedInMemory
from .world import World

if TYPE_CHECKING:
    from .node import Node


class FailoverConnection(MarkedInMemory, LedgerConnection):
    """One thread's view of a table whose timeline may change."""

    def __init__(self, process: Process) -> None:
        super().__init__(process)
        self._marks = MemoryMarks(
            self, clock=process.clock, timeline=self.database_timeline
        )


class FailoverPromises(LedgerPromises):
    """The judge: records may be repeated, but not skipped."""

    def on_produce(self, process: Process, record: Record) -> None:
        """Ids are given again, so the first one of a key says nothing."""

    def on_repeat(self, process: Process, record: Record) -> None:
        """Neither does an id say which record it is."""

    def on_append(self, request: Request) -> None:
        if not self._seen[request.record.message_id]:
            self.on_shown(request.record)


class FailoverBroker(Broker):
    """Nothing is poison here."""

    def _poison(self, request: Request) -> DeliveryFailed | None:
        return None


class FailoverProcess(Process):
    """One life of a harvester process that marks in memory."""

    def connect(self) -> FailoverConnection:
        return FailoverConnection(self)


class FailoverWorld(World):
    """The same nodes, group and faults as for marks in memory."""

    def _furnish(self) -> None:
        self.table: LedgerTable = LedgerTable(self)
        self.promises: FailoverPromises = FailoverPromises(self)
        self.broker = FailoverBroker(self)
        self.writers: LedgerWriters = LedgerWriters(self)

    def make_process(self, node: Node) -> FailoverProcess:
        return FailoverProcess(node)
