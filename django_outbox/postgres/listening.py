"""
Hears of commits: writers notify (`stashing.py`, setting NOTIFY), this listens.

The harvester gives it a thread of its own, since waiting for notifications
keeps a connection busy; `machinery.py` takes what is heard to the dispatchers.
A notification is a hint and nothing else: whatever is lost here, the pace of
`relay/pace.py` finds a moment later.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from ..events import boottime
from ..exceptions import DatabaseError
from ..relay.outage import Outage
from .connection import Database
from .statements import compose

logger = logging.getLogger(__name__)

LOOK: Final = 0.2
"""Seconds between two looks whether the run is over."""


class Listener:
    """
    Listens to one outbox on a connection of its own.

    Args:
        table: its name, perhaps with a schema: `sales.outbox`.
    """

    def __init__(self, database: Database, *, table: str) -> None:
        self._database = database
        self._statement = compose(table, ())["listen"]
        self._outage = Outage("The connection that listens for new rows")

    def run(self, is_over: threading.Event, hear: Callable[[], None]) -> None:
        """
        Listen until it is over; the body of the thread "listen".

        Args:
            hear: called on this thread when something was committed, once for
                all that is heard at a time; must return at once.
        """
        try:
            while not is_over.is_set():
                try:
                    self._listen(is_over, hear)
                except DatabaseError as error:
                    now = boottime()
                    is_over.wait(self._outage.lost(error, now) - now)
                else:
                    return
        finally:
            self._database.close()

    def _listen(self, is_over: threading.Event, hear: Callable[[], None]) -> None:
        """Listen on one connection, until it is over or nothing can be heard."""
        with self._database.session() as connection:
            if self._database.is_pooled:
                logger.warning(
                    "NOTIFY is of no use behind a pooler that shares server "
                    "processes: new rows are found by polling",
                    extra={"action": "listening_off"},
                )
                return
            connection.execute(self._statement, {})
            self._outage.reached(boottime())
            # What was committed before this moment has told nobody.
            hear()
            while not is_over.is_set():
                if list(connection.notifies(timeout=LOOK, stop_after=1)):
                    hear()
