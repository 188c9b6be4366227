"""
Deliberately broken variants, to prove that the simulator finds such bugs.

Each one is a mistake that an outbox can make, and most were made by one; the
last three were in this project until the simulator found them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from django_outbox.election.leadership import LeaderTerm
from django_outbox.election.neli import Neli
from django_outbox.election.ports import Heartbeat
from django_outbox.exceptions import DeliveryFailed
from django_outbox.records import Lane, Record, Settlement
from django_outbox.relay.dispatch import Dispatcher
from django_outbox.relay.inflight import InFlight
from django_outbox.relay.ports import Term
from django_outbox.relay.relay import Relay
from django_outbox.relay.settle import Settler

from .table import Row, Table

reported = Relay.reported
settled = Relay.settled
begin_drain = Dispatcher.begin_drain
settle = Settler.settle
heard = Neli.heard
confirmed = Neli.confirmed


class Mutant(NamedTuple):
    """One method, replaced by a broken one."""

    name: str
    owner: type
    method: str
    replacement: Callable[..., Any]
    breaks: str
    """Names of the promises of which one must break."""

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Break the code for a while."""
        with patch.object(self.owner, self.method, self.replacement):
            yield


# The election.


def lease_from_receipt(self: Neli, offset: int) -> None:
    if offset in self._claims:
        self._claims[offset] = self._clock()
    confirmed(self, offset)


def proof_without_the_group(self: Neli, heartbeat: Heartbeat, offset: int) -> None:
    heard(self, heartbeat, offset)
    confirmed(self, offset)


def lease_without_end(self: LeaderTerm, now: float) -> float:
    return inf


# The table.


def unscoped(self: Table, leader_id: str, ids: Sequence[int]) -> list[Row]:
    return [self.rows[id] for id in ids if id in self.rows]


def bare_cursor(self: Table, leader_id: str, limit: int) -> list[Record]:
    rows = self.rows.values()
    last = max((r.record.id for r in rows if r.leader_id == leader_id), default=0)
    page = sorted(id for id in self.rows if id > last)[:limit]
    for id in page:
        self.rows[id].leader_id = leader_id
    return [self.rows[id].record for id in page]


# The relay.


def barrier_down_at_the_ack(
    self: Relay, record: Record, error: DeliveryFailed | None
) -> None:
    reported(self, record, error)
    if error is None:
        self._flying.settle(record)
        self._flying.count += 1


def every_report_is_success(
    self: Relay, record: Record, error: DeliveryFailed | None
) -> None:
    reported(self, record, None)


def blocked_keys_are_produced(self: Relay, records: Sequence[Record]) -> None:
    self._flying.enqueue(records)


def followers_stay(self: InFlight, lane: Lane) -> int:
    return 0


def no_drain(self: Dispatcher, term: Term) -> None:
    begin_drain(self, term)
    self._drained.set()


def settled_without_the_table(self: Settler, settlement: Settlement) -> float | None:
    settle(self, settlement)
    settlement.purged = len(settlement.acknowledged)
    return None


def unanswered_purge_is_trusted(self: Settler, settlement: Settlement) -> int:
    asked = settlement.acknowledged
    purged = self._outbox.purge(settlement.leader_id, asked) if asked else 0
    return len(asked) if settlement.is_uncertain else purged


MUTANTS: Final = (
    Mutant("lease-from-receipt", Neli, "confirmed", lease_from_receipt, "P-LEAD"),
    Mutant(
        "proof-without-the-group", Neli, "heard", proof_without_the_group, "P-LEAD"
    ),
    Mutant("lease-without-end", LeaderTerm, "remaining", lease_without_end, "P-LEAD"),
    Mutant("writes-without-fence", Table, "_marked_by", unscoped, "P-FENCE P-REWIND"),
    Mutant("mark-by-bare-cursor", Table, "mark", bare_cursor, "P-LIVE"),
    Mutant("keys-not-reset", Table, "reset", lambda *_: 0, "P-LIVE"),
    Mutant(
        "barrier-down-at-the-ack",
        Relay,
        "reported",
        barrier_down_at_the_ack,
        "P-BARRIER",
    ),
    Mutant(
        "failure-taken-for-success",
        Relay,
        "reported",
        every_report_is_success,
        "P-LOSS",
    ),
    Mutant("no-force-remark", Relay, "force_remark", lambda *_: None, "P-LIVE"),
    Mutant(
        "blocked-keys-are-produced",
        Relay,
        "marked",
        blocked_keys_are_produced,
        "P-BARRIER",
    ),
    Mutant("followers-stay", InFlight, "drop_followers", followers_stay, "P-BARRIER"),
    Mutant("no-drain", Dispatcher, "begin_drain", no_drain, "P-DUP"),
    Mutant(
        "producer-outlives-its-term",
        Dispatcher,
        "_discard_producer",
        lambda *_: None,
        "P-REWIND",
    ),
    Mutant(
        "same-id-after-a-refresh",
        LeaderTerm,
        "refreshed",
        lambda self: self,
        "P-LIVE",
    ),
    Mutant(
        "settled-without-the-table",
        Settler,
        "settle",
        settled_without_the_table,
        "P-BARRIER P-LIVE",
    ),
    Mutant(
        "acts-without-a-look", Dispatcher, "_is_trusted", lambda *_: True, "P-LEAD"
    ),
    Mutant("rows-taken-twice", InFlight, "holds_any", lambda *_: False, "P-REWIND"),
    Mutant(
        "unanswered-purge-is-trusted",
        Settler,
        "_purge",
        unanswered_purge_is_trusted,
        "P-BARRIER",
    ),
)
