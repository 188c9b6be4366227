"""
Delivers events to the application's receivers, in order, on a thread of its own.

The reason for the thread: a receiver that sleeps for ten seconds must delay
neither heartbeats nor records. On the elector's thread it would cost the leader
its lease.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from ..events import Event

logger = logging.getLogger(__name__)


class Notifier:
    """
    A queue of events and the thread that empties it.

    Args:
        send: delivers one event to all receivers and returns how many raised.
    """

    def __init__(self, send: Callable[[Event], int]) -> None:
        self.errors = 0
        """Receivers that raised or exceeded their time limit."""
        self._send = send
        self._queue: queue.SimpleQueue[tuple[Event, threading.Event] | None]
        self._queue = queue.SimpleQueue()

    def put(self, event: Event) -> threading.Event:
        """Queue an event; the result is set when its receivers have returned."""
        done = threading.Event()
        self._queue.put((event, done))
        return done

    def put_and_wait(self, event: Event, timeout: float) -> bool:
        """Queue an event and give its receivers `timeout` seconds to return."""
        if self.put(event).wait(timeout):
            return True
        self.errors += 1
        logger.warning(
            "Receivers of %s did not return within %.1f s; continuing without them",
            event.kind,
            timeout,
            extra={"action": "receiver_overran", "kind": event.kind},
        )
        return False

    def run(self) -> None:
        """Deliver until `stop()`; the body of the thread "notify"."""
        while (item := self._queue.get()) is not None:
            event, done = item
            try:
                self.errors += self._send(event)
            finally:
                done.set()

    def stop(self) -> None:
        """End `run()` after the events that are queued."""
        self._queue.put(None)
