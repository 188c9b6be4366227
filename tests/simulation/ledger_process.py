"""One life of a harvester process with exactly-once delivery."""

from __future__ import annotations

from django_outbox.relay.dispatcher import Sender
from django_outbox.relay.ledger.ledger_sender import LedgerSender
from django_outbox.relay.settings import RelaySettings

from .failovers import FailoverConnection
from .process import Process
from .transactions import SimulatedTransactions


class LedgerProcess(Process):
    """Composed as in production; transactions take the place of the pipeline."""

    def connect(self) -> FailoverConnection:
        return FailoverConnection(self)

    def _make_sender(self, settings: RelaySettings) -> Sender:
        self.producer = self._make_transactions()
        self.sender = LedgerSender(
            settings,
            engine=self.engine,
            transactions=self.producer,
            queue=self.queue,
            is_trusted=self.is_trusted,
            clock=self.preempted_clock,
        )
        return self.sender

    def _make_transactions(self) -> SimulatedTransactions:
        return SimulatedTransactions(self)
