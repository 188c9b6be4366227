"""
Django signals for the events of a harvester.

Receivers get `sender` (the `Harvester` class) and `event` (a frozen value). For every
signal:

- Receivers run in the harvester's process, on its thread `notify`, one event
  after the other, in the order in which they happened. Harvesting and heartbeats
  do not wait for receivers, except those of `leader_revoked`; a slow receiver
  delays only later events.
- A receiver that raises, even `SystemExit`, is logged and counted
  (`MeterRead.receiver_errors`); the other receivers and the harvest continue.
- The thread has its own database connections, which are closed as after a request
  (CONN_MAX_AGE). No transaction is open.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any, Final

from django.db import close_old_connections
from django.dispatch import Signal

from .events import Event

logger = logging.getLogger(__name__)


class EventSignal(Signal):
    """A signal whose receivers cannot end the thread that they run on."""

    def _live_receivers(self, sender: object) -> tuple[list[Any], list[Any]]:
        # send_robust() only handles Exception; after sys.exit() in one receiver
        # the next receivers would not get the event.
        sync_receivers, async_receivers = super()._live_receivers(sender)
        return [_contained(receiver) for receiver in sync_receivers], async_receivers


def _contained(receiver: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(receiver)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return receiver(*args, **kwargs)
        except Exception:
            raise
        except BaseException as exc:
            raise RuntimeError(f"the receiver raised {type(exc).__name__}") from exc

    return call


leader_acquired = EventSignal()
"""
`LeaderAcquired`: this process became the leader.

Harvesting has begun when the receiver runs, and leadership may be lost before it
returns. Start leader-only work here, and stop it at `leader_revoked` and
`leader_fenced`.
"""

leader_refreshed = EventSignal()
"""
`LeaderRefreshed`: the same process leads under a new leader id.

It happens when the relay cannot say which rows are its own; `reason` says why. No
message was lost. For logs and counters.
"""

leader_revoked = EventSignal()
"""
`LeaderRevoked`: the broker revokes leadership and waits for this process.

Nothing is in flight, unless that took longer than `DRAIN_TIMEOUT`. Stop leader-only
work here. No successor is elected before the receivers return or `REVOKE_TIMEOUT` is
over, or half of the lease if this process goes on to lead other shards; after that, a
successor may lead while a receiver still runs.
"""

leader_fenced = EventSignal()
"""
`LeaderFenced`: this process cannot prove its leadership any more.

A successor may already lead, and does not wait for receivers. Stop leader-only work
at once and assume that another process does the same work now.
"""

meter_read = EventSignal()
"""
`MeterRead`: the leader's figures since the last reading, every METER_INTERVAL.

A slow receiver delays later readings.
"""

record_parked = EventSignal()
"""
`RecordParked`: a poison record was parked; later records of its key are sent.

The row is committed to the parked table. A person should look at it: `manage.py
outbox release` puts it back. A crash may lose this signal, never the row.
"""

series_expired = EventSignal()
"""
`SeriesExpired`: a series was not released in time and is closed.

Its messages are in the parked table (`manage.py outbox release` sends them) or
deleted, depending on its `on_timeout`; this is committed. A crash may lose this
signal, never a message.
"""

takeover_started = EventSignal()
"""
`TakeoverStarted`: this cluster relays overdue records of another cluster.

A person should check the other cluster's harvesters and the replication from it.
Records may arrive twice if that cluster still relays them, too.
"""

takeover_ended = EventSignal()
"""
`TakeoverEnded`: no record of that cluster was overdue for MAXIMUM_DELAY.

It is also sent when this process stops to lead; its successor starts a takeover of
its own.
"""

_SIGNALS: Final[dict[str, EventSignal]] = {
    "leader_acquired": leader_acquired,
    "leader_refreshed": leader_refreshed,
    "leader_revoked": leader_revoked,
    "leader_fenced": leader_fenced,
    "meter_read": meter_read,
    "record_parked": record_parked,
    "series_expired": series_expired,
    "takeover_started": takeover_started,
    "takeover_ended": takeover_ended,
}


def send(event: Event, sender: type[object] | None = None) -> int:
    """
    Send the signal of this event, if it has one.

    Never raises. Returns the number of receivers that raised.
    """
    signal = _SIGNALS.get(event.kind)
    if signal is None:
        return 0
    try:
        # The thread lives long: a connection may have failed since the last event.
        close_old_connections()
        responses = signal.send_robust(sender=sender, event=event)
        close_old_connections()
    except BaseException:
        # Asynchronous receivers run together: which one raised is unknown.
        logger.exception(
            "A receiver of %s raised.", event.kind, extra={"action": "notify"}
        )
        return 1
    return sum(isinstance(response, Exception) for _, response in responses)
