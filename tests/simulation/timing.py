"""
How long things take in a history: the shipped defaults, ten times faster.

The proportions are those of a real harvester. Only the pace of looks at an
idle table is coarser, which means nothing to the promises and saves time.
"""

from __future__ import annotations

from dataclasses import fields, replace
from math import inf
from typing import TYPE_CHECKING, Any, Final

from django_outbox.election.settings import ElectionSettings
from django_outbox.message.retry import RetryPolicy
from django_outbox.relay import dispatcher
from django_outbox.relay.settings import RelaySettings
from django_outbox.settings.options import OutboxSettings

if TYPE_CHECKING:
    from .plan import Plan

SPEED: Final = 10.0

_DEFAULTS: Final = OutboxSettings()

SESSION_TIMEOUT: Final = _DEFAULTS.SESSION_TIMEOUT / SPEED
HEARTBEAT_INTERVAL: Final = _DEFAULTS.HEARTBEAT_INTERVAL / SPEED
LEASE: Final = _DEFAULTS.HEARTBEAT_TIMEOUT / SPEED
MAX_POLL_INTERVAL: Final = _DEFAULTS.MAX_POLL_INTERVAL / SPEED
DRAIN_TIMEOUT: Final = _DEFAULTS.DRAIN_TIMEOUT / SPEED
DELIVERY_TIMEOUT: Final = _DEFAULTS.DELIVERY_TIMEOUT / SPEED
DATABASE_DEADLINE: Final = _DEFAULTS.DATABASE_DEADLINE / SPEED
RETRY_BACKOFF: Final = _DEFAULTS.RETRY_BACKOFF / SPEED
RETRY_BACKOFF_MAX: Final = _DEFAULTS.RETRY_BACKOFF_MAX / SPEED

LOOK_INTERVAL: Final = dispatcher.LOOK_INTERVAL / SPEED

STATEMENT_TIMEOUT: Final = 5.0 / SPEED
"""As `postgres.connection.Limits` has it: a statement takes no longer."""

LOCK_TIMEOUT: Final = 2.0 / SPEED
"""The same of a lock."""

LINGER: Final = 0.1 / SPEED
"""Seconds for which what is on the wire still lands after its connection closed."""

ISOLATION: Final = 2.5
"""With trouble of single rows only, others leave the table at most so late after they
have reached the log: some lock time-outs, and a slice of a thread's time."""

BUSY_INTERVAL: Final = 0.01
IDLE_INTERVAL: Final = 0.05

GRACEFUL_TTR: Final = 2.0 / SPEED
"""From LeaderRevoked, when the drain is over, to the next LeaderAcquired."""

CRASH_TTR: Final = SESSION_TIMEOUT + 0.3
"""From a crash to the next LeaderAcquired: ST + 3 s, ten times faster."""

RECOVERY: Final = 12.0
"""With nothing broken any more, some row leaves the table at least so often. It
covers what is frozen yet, a session, a rebalance, the longest back-offs, and the
pause after a sweep that took as long as a statement may."""


def election_settings(name: str, *, shards: int = 1) -> ElectionSettings:
    """Scale what the election of a real harvester is given."""
    settings = ElectionSettings(
        name=name,
        shards=shards,
        heartbeat_timeout=_DEFAULTS.HEARTBEAT_TIMEOUT,
        heartbeat_interval=_DEFAULTS.HEARTBEAT_INTERVAL,
    )
    scaled: dict[str, Any] = {}
    for field in fields(settings):
        value = getattr(settings, field.name)
        if isinstance(value, float):
            scaled[field.name] = value / SPEED
    return replace(settings, **scaled)


def relay_settings(plan: Plan) -> RelaySettings:
    """Join what the plan chose with the scaled defaults."""
    keeps_ledger = plan.delivery.endswith("exactly-once")
    return RelaySettings(
        page_rows=plan.mark_batch,
        page_bytes=500_000,
        max_in_flight=inf if keeps_ledger else plan.max_in_flight,
        max_in_flight_per_key=0 if plan.is_pipelined or keeps_ledger else 1,
        needs_proof=not keeps_ledger,
        marks_in_table=plan.delivery == "at-least-once",
        delivery_timeout=DELIVERY_TIMEOUT * (6 if plan.is_patient else 1),
        busy_interval=BUSY_INTERVAL,
        idle_interval=IDLE_INTERVAL,
        retry=_retry_policy(plan),
    )


def _retry_policy(plan: Plan) -> RetryPolicy:
    return RetryPolicy(
        backoff=RETRY_BACKOFF,
        backoff_max=RETRY_BACKOFF_MAX,
        attempts=2 if plan.parks_poison else 0,
    )
