"""Deliberate bugs where an operator pauses and resumes; see `mutants.py`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from django_outbox.message.pauses import NOTHING_PAUSED, Pauses
from django_outbox.message.record import Record
from django_outbox.relay.blocked_key import BlockedKeys
from django_outbox.relay.engine import Engine

from .mutant import Mutant, named

_keeps = BlockedKeys.keeps


def paused_records_are_found(self: BlockedKeys, record: Record) -> bool:
    """Send what was read, or taken back, during a pause."""
    pauses, self.pauses = self.pauses, NOTHING_PAUSED
    is_kept = _keeps(self, record)
    self.pauses = pauses
    return is_kept


def paused_records_wait_on(self: Engine, pauses: Pauses) -> None:
    """Send what was read before the pause."""
    former, self.blocked.pauses = self.blocked.pauses, pauses
    if not pauses.includes(former):
        self.refresh("resumed")


def resumed_records_are_left_to_a_sweep(self: Engine, pauses: Pauses) -> None:
    """Go on where the leader has come to meanwhile."""
    former, self.blocked.pauses = self.blocked.pauses, pauses
    if pauses != former:
        self._drop_blocked()


def _both(mutants: Iterable[Mutant]) -> Iterable[tuple[str, Mutant]]:
    for name, mutant in named(mutants).items():
        yield name, mutant._replace(delivery="paused")
        yield (
            f"exactly-once-{name}",
            mutant._replace(delivery="paused-exactly-once"),
        )


MUTANTS: Final = dict(
    _both(
        (
            Mutant(BlockedKeys, "keeps", paused_records_are_found, "paused"),
            Mutant(Engine, "pause", paused_records_wait_on, "paused"),
            Mutant(Engine, "pause", resumed_records_are_left_to_a_sweep, "paused"),
        )
    )
)
"""By name."""
