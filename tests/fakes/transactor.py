"""
The broker's side of transactions, in memory: epochs, commits and aborts.

The rules are Kafka's without KIP-890, as librdkafka implements them:

- initialising a `transactional.id` returns its next epoch and aborts an open
  transaction of an older one; requests of older epochs are refused;
- the writes of a transaction become visible at its commit, all at once, or never;
- a request to end a transaction names only the epoch: one that arrives late
  ends the transaction that is open then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from django_outbox.exceptions import ProducerBroken


@dataclass(slots=True)
class _State:
    epoch: int = -1
    writes: list[Callable[[], object]] = field(default_factory=list)
    """Of the open transaction, in order."""


class Transactor:
    """Requests take effect at the moment of the call; clients add the network."""

    def __init__(self) -> None:
        self._states: dict[str, _State] = {}

    def initialise(self, transactional_id: str) -> int:
        """Abort an open transaction of this id; return the next epoch."""
        state = self._states.setdefault(transactional_id, _State())
        state.epoch += 1
        state.writes.clear()
        return state.epoch

    def is_current(self, transactional_id: str, epoch: int) -> bool:
        """Whether this epoch is the latest of the id."""
        return self._states[transactional_id].epoch == epoch

    def add(
        self, transactional_id: str, epoch: int, write: Callable[[], object]
    ) -> None:
        """
        Add to the open transaction, or begin one; the write is done at the commit.

        Raises:
            ProducerBroken: somebody else has taken the id over.
        """
        self._of(transactional_id, epoch).writes.append(write)

    def end(self, transactional_id: str, epoch: int, *, is_commit: bool) -> None:
        """
        Commit or abort whatever is open.

        Raises:
            ProducerBroken: somebody else has taken the id over.
        """
        state = self._of(transactional_id, epoch)
        writes, state.writes = state.writes, []
        if is_commit:
            for write in writes:
                write()

    def _of(self, transactional_id: str, epoch: int) -> _State:
        if not self.is_current(transactional_id, epoch):
            raise ProducerBroken(
                "Another producer has taken this transactional id over.",
                code="_FENCED",
            )
        return self._states[transactional_id]
