"""One life of a harvester process with the ledger relay."""

from __future__ import annotations

from django_outbox.relay.ledger.ledger_dispatcher import LedgerDispatcher
from django_outbox.relay.ledger.page_reader import PageReader
from django_outbox.relay.settler import Settler

from . import timing
from .ledger_connection import LedgerConnection
from .process import Process
from .transactions import SimulatedTransactions


class LedgerProcess(Process):
    """Composed as in production; what marks elsewhere finds rows here."""

    def _assemble_relay(self) -> None:
        self.settler = Settler(
            outbox=LedgerConnection(self), on_parked=lambda *_: None, clock=self.clock
        )
        self.reader = PageReader(table=LedgerConnection(self), clock=self.clock)
        self.producer = SimulatedTransactions(self)
        self.dispatcher = LedgerDispatcher(
            timing.ledger_settings(self.world.plan),
            lease=self._lease(self.reader.outage, self.settler.outage),
            transactions=self.producer,
            queue=self.queue,
            clock=self.preempted_clock,
        )
