"""
LISTEN: learns of commits by writers that notify (setting NOTIFY).

It has a thread and a connection of its own. A notification is only a hint:
polling finds the rows of a lost one a moment later.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from ..clock import boottime
from ..exceptions import DatabaseError
from ..relay.availability import Availability
from .connection import Database
from .deadlines import READABLE, wait_for
from .statements import compose

logger = logging.getLogger(__name__)

LONGEST_WAIT: Final = 0.2
"""Seconds for a notification, before it is asked again whether to end."""


class Listener:
    """
    Listens to one outbox on a connection of its own.

    Args:
        table: its name, perhaps with a schema: `sales.outbox`.
    """

    def __init__(self, database: Database, *, table: str) -> None:
        self._database = database
        self._statement = compose(table, ())["listen"]
        self._outage = Availability("The connection that listens for new rows")

    def run(self, hear: Callable[[], None], is_over: threading.Event) -> None:
        """
        Listen until `is_over` is set.

        Args:
            hear: called after commits, once for all notifications that arrive
                together; must return at once.
        """
        try:
            while not is_over.is_set():
                try:
                    self._listen(hear, is_over)
                except DatabaseError as error:
                    # Waiting long for a notification is not an outage.
                    error.waited = 0.0
                    retry_at = self._outage.lost(error, boottime())
                    is_over.wait(retry_at - boottime())
                else:
                    return
        finally:
            self._database.close()

    def _listen(self, hear: Callable[[], None], is_over: threading.Event) -> None:
        """Listen on one connection, until it breaks or is to end."""
        with self._database.session() as connection:
            if self._database.is_pooled:
                logger.warning(
                    "NOTIFY does not work behind a pooler that shares server "
                    "processes; new rows are found by polling",
                    extra={"action": "listening_off"},
                )
                return
            connection.execute(self._statement, {})
            self._outage.reached(boottime())
            # Nothing was notified of commits before this moment.
            hear()
            libpq = connection.pgconn
            while not is_over.is_set():
                if wait_for(libpq.socket, READABLE, timeout=LONGEST_WAIT):
                    libpq.consume_input()
                    if list(iter(libpq.notifies, None)):
                        hear()
