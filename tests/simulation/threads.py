"""
Simulated threads: real ones, of which exactly one runs at a time.

The code under test blocks in the middle of its work, in a statement or behind
the barrier, and the others must live on meanwhile. Whoever sleeps passes the
timeline on to an idle thread and gets it back when its time has come. So all
that happens has one order, and the same seed always the same.
"""

from __future__ import annotations

from _thread import LockType, allocate_lock, start_new_thread

from tests.fakes.timeline import Timeline


class Ended(BaseException):
    """Unwinds a thread that still sleeps when the history is over."""


def _baton() -> LockType:
    """Make a lock that is held: releasing it lets its owner go on."""
    lock = allocate_lock()
    lock.acquire()
    return lock


class Threads:
    """Runs a timeline whose actions may call `sleep()`."""

    def __init__(self, time: Timeline) -> None:
        self._time = time
        self._until = time()
        self._caller = _baton()
        self._idle: list[LockType] = []
        self._asleep: dict[LockType, None] = {}
        self._failure: BaseException | None = None
        self._is_closing = False

    def run(self, seconds: float) -> None:
        """Let time pass; raise what an action raised."""
        self._until = self._time() + seconds
        self._pass_on()
        self._caller.acquire()
        if self._failure is not None:
            raise self._failure

    def sleep(self, seconds: float) -> None:
        """Hold the calling action up, while all others go on."""
        if self._is_closing:
            raise Ended
        mine = _baton()
        self._asleep[mine] = None
        self._time.after(seconds, lambda: self._wake(mine))
        self._pass_on()
        mine.acquire()
        if self._is_closing:
            raise Ended

    def close(self) -> None:
        """End all threads, one after the other; the timeline stands still."""
        self._is_closing = True
        for baton in [*self._asleep, *self._idle]:
            baton.release()
            self._caller.acquire()

    def _wake(self, baton: LockType) -> None:
        del self._asleep[baton]
        self._hand_to(baton)

    def _hand_to(self, baton: LockType) -> None:
        """Let another go on, and wait until somebody needs this thread."""
        mine = _baton()
        self._idle.append(mine)
        baton.release()
        mine.acquire()
        if self._is_closing:
            raise Ended

    def _pass_on(self) -> None:
        if self._idle:
            self._idle.pop().release()
        else:
            start_new_thread(self._work, ())

    def _work(self) -> None:
        """Be one thread of the pool."""
        try:
            self._play()
            while not self._is_closing:
                self._hand_to(self._caller)
                self._play()
        except Ended:
            pass
        self._caller.release()

    def _play(self) -> None:
        try:
            while (left := self._until - self._time()) > 0:
                self._time.advance(left)
        except Ended:
            raise
        except BaseException as error:
            self._failure = error
