"""Deliberate bugs where any number of records of a key may be in flight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from django_outbox.exceptions import DeliveryFailed
from django_outbox.message.record import OrderingKey, Record
from django_outbox.relay.mpr.barrier import Relay
from django_outbox.relay.mpr.dispatcher import Dispatcher
from django_outbox.relay.mpr.inflight import InFlight

from .mutant import Mutant, named
from .mutants import led_again_after_a_stand_down

_acknowledged = InFlight.acknowledged
_recall = InFlight.recall


def keys_go_before_their_partition_is_proven(
    self: InFlight, record: Record, ordering_key: OrderingKey, key: object
) -> bool:
    """Send all records of a key at once to a partition that is coming up."""
    return not self._is_apart(record)


def other_clients_prove_a_partition(self: InFlight, records: Sequence[Record]) -> None:
    """Take a record that was sent apart for a proof."""
    self.apart.difference_update([record.id for record in records])
    _acknowledged(self, records)


def failures_keep_their_producer(
    self: Relay, record: Record, error: DeliveryFailed
) -> None:
    """Go on with a producer that sends nothing behind a failure."""
    self.refused(record, error)


def deadline_is_nobodys(self: Dispatcher, *, has_news: bool) -> None:
    """Wait for an acknowledgement, however long."""


def recalled_in_reverse(self: InFlight) -> list[Record]:
    """Send again what was under way, the last one first."""
    return _recall(self)[::-1]


def recalled_without_what_was_under_way(self: InFlight) -> list[Record]:
    """Leave what was under way to a sweep."""
    under_way = set(self.unreported)
    return [record for record in _recall(self) if record.id not in under_way]


def blocked_keys_are_recalled(self: Relay) -> None:
    """Send again what lies behind a record that has failed."""
    self.is_producer_broken = False
    self._count_delivered()
    records = self._flying.recall()
    if self.leader_id is not None and not self.must_remark:
        self._flying.enqueue(records)


MUTANTS: Final = {
    f"pipelined-{name}": mutant._replace(delivery="pipelined")
    for name, mutant in named(
        (
            Mutant(
                InFlight, "_may_go", keys_go_before_their_partition_is_proven, "broker"
            ),
            Mutant(InFlight, "acknowledged", other_clients_prove_a_partition, "broker"),
            Mutant(Relay, "_broken_off", failures_keep_their_producer, "broker"),
            Mutant(Dispatcher, "_watch_deliveries", deadline_is_nobodys, "broker"),
            Mutant(InFlight, "recall", recalled_in_reverse, "broker"),
            Mutant(InFlight, "recall", recalled_without_what_was_under_way, "broker"),
            Mutant(Relay, "restart", blocked_keys_are_recalled, "poison"),
            Mutant(Dispatcher, "_follow", led_again_after_a_stand_down, "process"),
        )
    ).items()
}
"""By name."""
