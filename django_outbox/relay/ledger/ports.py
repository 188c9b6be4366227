"""
What exactly-once delivery needs beside the table: transactions.

Every implementation passes the scenarios in `tests/contracts`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ...message.record import Record
from ..batch import Fault
from .committed_ids import IdRange, extended


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """
    What a transaction carried, and what earlier ones had not yet purged.

    Written in the records' own transaction, so that a reader of committed
    records finds either both or neither.
    """

    timeline: str
    """System identifier and timeline of the origin's database, under which ids are
    unique; empty while none but other clusters have written ledgers."""
    records: Sequence[Record]
    """In the log, and perhaps in the table; of a ledger that was read, only the
    identity (`Record.identified`)."""
    relayed: Sequence[IdRange] = ()
    """All that was ever committed under this ledger, as far as it is remembered;
    none where there is only one cluster."""
    shards: int = 1
    """Of a ledger that was read: into how many shards its writer divided the keys."""

    def followed_by(
        self, batch: Sequence[Record], unpurged: Sequence[Record], *, clusters: int
    ) -> Ledger:
        """Return the ledger that goes with the next batch."""
        is_shared = clusters > 1
        return Ledger(
            timeline=self.timeline,
            records=[*batch, *unpurged],
            relayed=extended(self.relayed, batch, step=clusters) if is_shared else (),
        )


class Transactions(Protocol):
    """
    The transactional producer of one origin's records; it serves one thread.

    All clusters that share a Kafka share the origin's transactional id and its
    ledger. Every method but `close` may block, within the delivery time-out
    and a bit.
    """

    def open(self) -> Ledger | None:
        """
        Fence the former producer of the shard, and return its last committed ledger.

        Raises:
            KafkaError: not now; close, and open again later.
        """

    def others(self) -> Sequence[Ledger]:
        """
        Return the last ledgers of all other leaders, called after `open`.

        Of leaders that divided the keys differently (another setting SHARDS was in
        force), which may have sent records of this shard: their producers are fenced.
        And of the other shards, which list what they found in such a ledger.

        Raises:
            KafkaError: not now; close, and open again later.
        """

    def read(self) -> Ledger | None:
        """
        Return the last committed ledger, and disturb nobody.

        Raises:
            KafkaError: not now; try again later.
        """

    def send(
        self,
        records: Sequence[Record],
        leader_id: str,
        ledger: Ledger,
        *,
        patience: float,
        may_commit: Callable[[], bool],
    ) -> Sequence[Fault] | None:
        """
        Carry the records and their ledger in one transaction.

        Returns None when it is committed. Otherwise nothing of it is visible,
        ever, and the faults say why; without a fault, try again.

        Args:
            patience: seconds for the records to be acknowledged.
            may_commit: asked directly before the commit.

        Raises:
            LedgerRefused: the ledger was, and no record; try fewer of them later.
            ProducerBroken: the outcome is unknown, or nothing can be sent any
                more: close, and open again to learn it from the ledger.
        """

    def serve(self) -> None:
        """Let the client tell of its troubles; call it when there is nothing to do."""

    def close(self) -> None:
        """Drop the client without waiting; safe to call twice."""
