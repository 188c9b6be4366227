"""
LISTEN: learns of commits by writers that notify (setting NOTIFY).

It waits in a fiber, on a connection of its own. A notification is only a hint:
polling finds the rows of a lost one a moment later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import inf

from ..clock import boottime
from ..exceptions import DatabaseError
from ..relay.availability import Availability
from ..relay.fibers import this
from .connection import Database
from .statements import compose

logger = logging.getLogger(__name__)


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

    def run(self, hear: Callable[[], None]) -> None:
        """
        Listen until the fiber in which this is called is ended.

        Args:
            hear: called after commits, once for all notifications that arrive
                together; must return at once.
        """
        try:
            while True:
                try:
                    self._listen(hear)
                except DatabaseError as error:
                    # Waiting long for a notification is not an outage.
                    error.waited = 0.0
                    this().sleep_until(self._outage.lost(error, boottime()))
                else:
                    return
        finally:
            self._database.close()

    def _listen(self, hear: Callable[[], None]) -> None:
        """Listen on one connection, until it breaks."""
        with self._database.session() as connection:
            if self._database.is_pooled:
                logger.warning(
                    "NOTIFY does not work behind a pooler that shares server "
                    "processes; new rows are found by polling",
                    extra={"action": "listening_off"},
                )
                return
            connection.execute(self._statement, {})
            connection.answer_timeout = inf
            self._outage.reached(boottime())
            # Nothing was notified of commits before this moment.
            hear()
            while True:
                list(connection.notifies(stop_after=1))
                hear()
