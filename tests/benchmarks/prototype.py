"""
A relay in pipelined pages, without what makes it a product.

One producer with the gapless guarantee has several pages in flight; a page that
is acknowledged is deleted with one statement, on a thread of its own, while the
next ones are read and produced. It has no election, no lease, no poison
handling, and finds no row that is committed behind its position: what a
harvester reaches at most.
"""

from __future__ import annotations

import threading
from collections import deque
from queue import SimpleQueue
from typing import Any, Final

from .naive import DELETE, ROWS, LoopSide, headers, producer
from .servers import connect

PAGE_ROWS: Final = 2000
PAGES_IN_FLIGHT: Final = 4


class _Page:
    """The rows of one statement, and how many are still not acknowledged."""

    __slots__ = ("ids", "left")

    def __init__(self, ids: list[int]) -> None:
        self.ids = ids
        self.left = len(ids)

    def acknowledge(self, error: object, message: Any) -> None:
        assert error is None, error
        assert message.offset() is not None
        self.left -= 1


def relay() -> None:
    """Empty the table."""
    client = producer(enable_gapless_guarantee=True)
    under_way: deque[_Page] = deque()
    done: SimpleQueue[list[int] | None] = SimpleQueue()
    purger = threading.Thread(target=_purge, args=(done,), daemon=True)
    purger.start()

    def settle(at_most: int) -> None:
        """Serve acknowledgements until so few pages are under way."""
        client.poll(0)
        while under_way and (not under_way[0].left or len(under_way) > at_most):
            if under_way[0].left:
                client.poll(0.01)
            else:
                done.put(under_way.popleft().ids)

    position = 0
    with connect() as connection, connection.cursor(binary=True) as cursor:
        while rows := cursor.execute(ROWS, [position, PAGE_ROWS]).fetchall():
            position = rows[-1][0]
            page = _Page([row[0] for row in rows])
            under_way.append(page)
            for row in rows:
                client.produce(
                    row[1], row[3], row[2], -1, page.acknowledge, headers=headers(row)
                )
            settle(PAGES_IN_FLIGHT - 1)
        settle(0)
    done.put(None)
    purger.join()


def _purge(done: SimpleQueue[list[int] | None]) -> None:
    """Delete pages as they come; None: it was the last one."""
    with connect() as connection:
        while (ids := done.get()) is not None:
            connection.execute(DELETE, [ids])


PROTOTYPE: Final = LoopSide("pipelined prototype", relay)
