"""Waits for a socket, or for a call that may block, with a deadline."""

from __future__ import annotations

import select
import threading
from collections.abc import Callable
from concurrent.futures import Future
from math import inf
from typing import Final, TypeVar

ResultT = TypeVar("ResultT")

READABLE: Final = 1
WRITABLE: Final = 2


def wait_for(socket: int, events: int, *, timeout: float) -> int:
    """
    Wait until a socket is `READABLE` or `WRITABLE`; return what it is, or 0.

    Args:
        timeout: seconds, at most.
    """
    wanted = select.POLLIN if events & READABLE else 0
    wanted |= select.POLLOUT if events & WRITABLE else 0
    waiting = select.poll()
    waiting.register(socket, wanted)
    found = waiting.poll(None if timeout == inf else max(1, round(1000 * timeout)))
    if not found:
        return 0
    _, ready = found[0]
    # A read reports an error, too.
    is_readable = ready & ~select.POLLOUT
    return (WRITABLE if ready & select.POLLOUT else 0) | (
        READABLE if is_readable else 0
    )


def call_apart(
    work: Callable[[], ResultT],
    *,
    discard: Callable[[ResultT], object],
    timeout: float,
) -> ResultT:
    """
    Do on a thread of its own what blocks without a time-out, and wait for it.

    Args:
        discard: called, on that thread, with a result that comes too late.
        timeout: seconds to wait at most.

    Raises:
        TimeoutError: the work goes on, and its result will be discarded.
    """
    outcome: Future[ResultT] = Future()

    def work_apart() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:  # noqa: BLE001 (raised by result())
            outcome.set_exception(error)

    def throw_away(ended: Future[ResultT]) -> None:
        if not ended.exception():
            discard(ended.result())

    threading.Thread(target=work_apart, name="outbox-call", daemon=True).start()
    try:
        return outcome.result(timeout)
    except BaseException:
        # Without effect on work that has failed.
        outcome.add_done_callback(throw_away)
        raise
