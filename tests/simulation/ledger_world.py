"""All that exists in one history of the ledger relay."""

from __future__ import annotations

from django_outbox.relay.ledger.ports import Ledger
from tests.fakes.transactor import Transactor

from .broker import Broker
from .ledger_process import LedgerProcess
from .ledger_promises import LedgerPromises
from .ledger_table import LedgerTable
from .ledger_writers import LedgerWriters
from .node import Node
from .world import World


class LedgerWorld(World):
    """The same nodes, group and faults, over a table that nobody marks."""

    def _furnish(self) -> None:
        self.table: LedgerTable = LedgerTable(self)
        self.promises: LedgerPromises = LedgerPromises(self)
        self.broker = Broker(self)
        self.writers: LedgerWriters = LedgerWriters(self)
        self.transactor = Transactor()
        self.in_transit = 0
        """Requests to the transactor on their way."""
        self.ledgers: dict[int, Ledger] = {}
        """The last one of each shard that was committed."""

    def make_process(self, node: Node) -> LedgerProcess:
        return LedgerProcess(node)

    @property
    def is_busy(self) -> bool:
        return bool(self.in_transit) or super().is_busy
