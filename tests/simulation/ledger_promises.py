"""
What the ledger relay promises to a reader of committed records.

Each record once, in the order of ids, which is that of the commits; nothing of
a transaction that was aborted, or of a leader of the past. Only a failover to
a standby that lagged may bring a record back, once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from django_outbox.events import Event, LeaderAcquired, LeaderRefreshed
from django_outbox.message.record import OrderingKey, Record

from .promises import Promises

if TYPE_CHECKING:
    from .failovers import FailoverWorld
    from .ledger_world import LedgerWorld
    from .process import Process


class LedgerPromises(Promises):
    """The judge of one history."""

    _world: LedgerWorld | FailoverWorld

    def __init__(self, world: LedgerWorld) -> None:
        super().__init__(world)
        self._seen: Counter[str] = Counter()
        """How often the log shows each message id."""
        self._newest: dict[OrderingKey, int] = {}
        """The last message id of each key that was shown for the first time."""
        self._terms: dict[str | None, int] = {}
        """Leader ids in the order of their terms."""
        self._newest_term = 0
        """The last one that has opened."""

    def on_event(self, process: Process, event: Event) -> None:
        if isinstance(event, LeaderAcquired):
            self._terms[event.leader_id] = len(self._terms)
        elif isinstance(event, LeaderRefreshed):
            # A suspended leader may refresh its id before it is fenced: the term is
            # still the old one.
            self._terms[event.leader_id] = self._terms[event.previous_leader_id]
        super().on_event(process, event)

    def on_open(self, leader_id: str | None) -> None:
        """Note which term's leader has fenced those before it."""
        self._newest_term = max(self._newest_term, self._terms.get(leader_id, 0))

    def on_commit(self, process: Process, leader_id: str) -> None:
        """P-ZOMBIE: nothing is seen of a leader whose successor has opened."""
        if self._terms[leader_id] < self._newest_term:
            self._break("P-ZOMBIE", f"{process.name} commits after its successor")
        self._figure("transactions")

    def on_transaction(self, process: Process, records: Sequence[Record]) -> None:
        """P-APART: what has failed before does not go with others."""
        failed = [record.id for record in records if record.attempts]
        if 0 < len(failed) < len(records):
            what = f"{process.name} sends {failed} again, together with others"
            self._break("P-APART", what)
        self.check_paused(process, records)

    def on_shown(self, record: Record) -> None:
        """P-PHANTOM, P-ONCE and P-ORDER: a reader of committed records sees one."""
        table, message_id = self._world.table, record.message_id
        if message_id not in table.committed:
            self._break("P-PHANTOM", f"{_name(record)} was never committed")
        self._seen[message_id] += 1
        if self._seen[message_id] > 1:
            if self._seen[message_id] > 1 + table.returned[message_id]:
                self._break("P-ONCE", f"{_name(record)} is seen again")
            self._figure("came back after a failover")
            return
        self._logged_at[record.id] = self._world.time()
        newest = self._newest.get(record.ordering_key, 0)
        if int(message_id) < newest:
            self._break("P-ORDER", f"{_name(record)} comes after {newest}")
        self._newest[record.ordering_key] = int(message_id)

    def on_purge(self, leader_id: str | None, record: Record) -> None:
        """P-PURGE: what is purged is in the log."""
        if not self._seen[record.message_id]:
            who = self.name(leader_id) if leader_id else "a rest"
            self._break("P-PURGE", f"{who} purges {_name(record)} unsent")

    def at_end(self) -> None:
        """P-LOSS and P-PARK."""
        self.check_isolation()
        table = self._world.table
        self._world.outcome.figures["rows"] = len(table.committed)
        self._world.outcome.figures["lost by a failover"] += len(table.lost)
        parked = table.parked_ids
        lost = [
            int(message_id)
            for message_id in table.committed
            if not self._seen[message_id]
            and message_id not in parked
            and message_id not in table.lost
        ]
        if lost:
            self._break("P-LOSS", f"rows {lost} are neither in the log nor parked")
        for message_id in parked:
            if not table.committed[message_id].poison or self._seen[message_id]:
                self._break("P-PARK", f"row {message_id} was parked without need")


def _name(record: Record) -> str:
    return f"row {record.id} ({record.message_id}) of {record.topic}/{record.key}"
