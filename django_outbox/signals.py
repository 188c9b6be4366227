"""
What a harvester tells the app: Django signals that carry a frozen event.

`harvester/harvester.py` calls `send()` for each event; receivers get `sender` (the
`Harvester` class) and `event` (a value of `events.py`). For every signal:

- Receivers run in the harvester's process, on its thread `notify`, one event
  after the other in the order in which they happened. Neither harvesting nor
  heartbeats wait for them, but for `leader_revoked`; a slow receiver delays
  only later events.
- A receiver that raises, even `SystemExit`, is logged and counted
  (`MeterRead.receiver_errors`); the other receivers still run and the harvest
  goes on.
- The thread has database connections of its own, which are closed as after a
  request (CONN_MAX_AGE). No transaction is open.
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
        # send_robust() survives Exception only; sys.exit() in one receiver
        # would keep the event from the receivers behind it.
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
`LeaderAcquired`: this process leads from now on.

Harvesting has begun by the time that the receiver runs, and leadership may be
lost again before it returns: start leader-only work here, and let it stop at
`leader_revoked` and `leader_fenced`.
"""

leader_refreshed = EventSignal()
"""
`LeaderRefreshed`: the same process leads on under a new leader id.

It happens after a failed delivery; nothing was lost. For logs and counters.
"""

leader_revoked = EventSignal()
"""
`LeaderRevoked`: the broker takes leadership and waits for this process.

All that was in flight is settled. Stop leader-only work here. No successor
is elected before the receivers return, or before `REVOKE_TIMEOUT` is spent:
then the successor may lead while the receiver still runs.
"""

leader_fenced = EventSignal()
"""
`LeaderFenced`: nothing proves any more that this process leads.

A successor may lead already: blocking here holds nothing up. Stop leader-only
work at once and assume that another process does the same work now.
"""

meter_read = EventSignal()
"""
`MeterRead`: what the leader did since the last reading, every METER_INTERVAL.

Readings that wait behind a slow receiver arrive late.
"""

record_parked = EventSignal()
"""
`RecordParked`: a poison record was set aside; its followers go on without it.

The row is already in the parked table and committed. A person should look:
`manage.py outbox release` puts it back. A crash may lose this signal, never
the row.
"""

series_expired = EventSignal()
"""
`SeriesExpired`: a series was not released in time and is closed for good.

Its messages are in the parked table (`manage.py outbox release` sends them
after all) or deleted, as its `on_timeout` says, and that is committed. A crash
may lose this signal, never a message.
"""

takeover_started = EventSignal()
"""
`TakeoverStarted`: this cluster relays what another one has left for too long.

A person should look after the other cluster's harvesters, or the replication
from it. Records may arrive twice if it still relays them itself.
"""

takeover_ended = EventSignal()
"""
`TakeoverEnded`: nothing of that cluster had to be relayed for MAXIMUM_DELAY.

It is sent, too, when this process ceases to lead; its successor starts anew.
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
        # The thread lives long: a connection may have died since the last event.
        close_old_connections()
        responses = signal.send_robust(sender=sender, event=event)
        close_old_connections()
    except BaseException:
        # Asynchronous receivers run together: which one ended it is unknown.
        logger.exception(
            "A receiver of %s raised.", event.kind, extra={"action": "notify"}
        )
        return 1
    return sum(isinstance(response, Exception) for _, response in responses)
