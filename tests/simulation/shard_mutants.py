"""Deliberate bugs of several shards whose number changes; see `mutants.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from django_outbox.election.neli import Neli
from django_outbox.election.ports import Heartbeat
from django_outbox.relay import memory_marks
from django_outbox.relay.ledger.ledger_sender import LedgerSender
from django_outbox.relay.ledger.ports import Ledger
from django_outbox.relay.ports import Others

from .mutant import Mutant, named
from .shard import ShardTransactions

_compare = LedgerSender._compare
_heard = Neli.heard


def ledgers_of_other_numbers_ignored(self: ShardTransactions) -> Sequence[Ledger]:
    """Read the shard's own ledger only."""
    return ()


def ledgers_of_other_shards_ignored(self: LedgerSender, timeline: str) -> None:
    """Take over what leaders of other numbers list, but not who took that over."""
    shards = self._settings.shards
    self._others = [one for one in self._others if one.shards != shards]
    _compare(self, timeline)


def leaders_of_other_numbers_not_fenced(
    self: ShardTransactions, number: int, shards: int
) -> None:
    """Read their ledgers, and let them go on."""


def a_look_at_other_shards_closes_gaps(
    ids: list[int], others: Others | None
) -> list[int]:
    """Take all ids for shown, up to the end of the look."""
    if others is None:
        return ids
    found = [*ids, *others.ids]
    return [*range(min(found, default=others.end + 1), others.end + 1)]


def proofs_go_to_the_first_shard(self: Neli, heartbeat: Heartbeat, offset: int) -> None:
    """Commit the offset of each heartbeat to the first leader partition."""
    shard, self._shard = self._shard, 0
    _heard(self, heartbeat, offset)
    self._shard = shard


MUTANTS: Final = named(
    (
        Mutant(Neli, "heard", proofs_go_to_the_first_shard, "graceful", "shards"),
        Mutant(
            ShardTransactions,
            "others",
            ledgers_of_other_numbers_ignored,
            "process",
            "shards-exactly-once",
        ),
        Mutant(
            LedgerSender,
            "_compare",
            ledgers_of_other_shards_ignored,
            "locks",
            "shards-exactly-once",
        ),
        Mutant(
            ShardTransactions,
            "_fence",
            leaders_of_other_numbers_not_fenced,
            "process",
            "shards-exactly-once",
        ),
        Mutant(
            memory_marks,
            "_with_others",
            a_look_at_other_shards_closes_gaps,
            "graceful",
            "shards",
        ),
    )
)
