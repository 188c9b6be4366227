"""Several bodies on one thread, each of which waits for something else."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from greenlet import GreenletExit

from django_outbox.clock import boottime
from django_outbox.relay import fibers as module
from django_outbox.relay.fibers import READABLE, Fibers, here, this

LONG = 30.0
"""Seconds that no test waits for."""


@pytest.fixture
def fibers() -> Iterator[Fibers]:
    fibers = Fibers()
    yield fibers
    fibers.close()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_items_are_handled_in_their_order_on_the_thread_that_runs(
    fibers: Fibers,
) -> None:
    handled: list[tuple[int, int]] = []

    def handle(item: int) -> None:
        handled.append((item, threading.get_ident()))

    put = fibers.serve(handle)
    for item in range(3):
        put(item)
    assert handled == []

    fibers.run(0.0)

    assert handled == [(item, threading.get_ident()) for item in range(3)]


def test_nobody_is_in_a_fiber_outside() -> None:
    assert here() is None


def test_one_waits_for_its_socket_while_another_goes_on(
    fibers: Fibers, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    done: list[str] = []

    def read(_: str) -> None:
        assert this().wait_for(ours.fileno(), READABLE) == READABLE
        done.append(ours.recv(9).decode())

    ask, note = fibers.serve(read), fibers.serve(done.append)
    ask("something")
    fibers.run(0.0)
    note("meanwhile")
    fibers.run(0.0)
    assert done == ["meanwhile"]

    theirs.send(b"answer")
    fibers.run(LONG)

    assert done == ["meanwhile", "answer"]


def test_a_wait_may_have_an_end_and_another_may_follow(
    fibers: Fibers, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    seen: list[int] = []

    def read(_: None) -> None:
        seen.append(this().wait_for(ours.fileno(), READABLE, until=boottime() + 0.01))
        theirs.send(b"late")
        seen.append(this().wait_for(ours.fileno(), READABLE))

    fibers.serve(read)(None)
    while len(seen) < 2:
        fibers.run(LONG)

    assert seen == [0, READABLE]


def test_a_peer_that_has_gone_ends_the_wait(
    fibers: Fibers, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    seen: list[bytes] = []

    def read(_: None) -> None:
        this().wait_for(ours.fileno(), READABLE)
        seen.append(ours.recv(9))

    fibers.serve(read)(None)
    fibers.run(0.0)
    theirs.close()
    fibers.run(LONG)

    assert seen == [b""]


def test_another_thread_ends_a_wait(fibers: Fibers) -> None:
    handled: list[str] = []
    put = fibers.serve(handled.append)
    fibers.run(0.0)
    thread = threading.Thread(target=put, args=("late",))
    thread.start()
    while not handled:
        fibers.run(LONG)
    thread.join()

    assert handled == ["late"]


def test_a_call_to_wake_before_the_wait_is_not_lost(fibers: Fibers) -> None:
    fibers.wake()

    fibers.run()


def test_a_wait_is_ended_as_often_as_somebody_wakes(fibers: Fibers) -> None:
    fibers.run(0.0)
    for _ in range(100):
        thread = threading.Thread(target=fibers.wake)
        thread.start()
        fibers.run()
        thread.join()


def test_a_fiber_sleeps_no_longer_than_it_says(
    fibers: Fibers, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(module, "boottime", lambda: now)
    woken: list[float] = []

    def sleep(seconds: float) -> None:
        this().sleep_until(now + seconds)
        woken.append(now)

    fibers.serve(sleep)(5.0)
    fibers.run(0.0)
    now += 4.9
    fibers.run(0.0)
    assert woken == []
    now += 0.2
    fibers.run(0.0)

    assert woken == [now]


def test_a_sleeper_ends_the_wait_of_its_thread(fibers: Fibers) -> None:
    woken: list[str] = []

    def sleep(seconds: float) -> None:
        this().sleep_until(boottime() + seconds)
        woken.append("up")

    fibers.serve(sleep)(0.01)
    while not woken:
        fibers.run()


def test_what_blocks_is_called_on_another_thread(fibers: Fibers) -> None:
    threads: list[int] = []

    def call(_: None) -> None:
        threads.append(module.call(threading.get_ident, discard=print, timeout=LONG))

    fibers.serve(call)(None)
    while not threads:
        fibers.run()

    assert threads != [threading.get_ident()]


def test_what_the_call_raises_comes_back(fibers: Fibers) -> None:
    caught: list[str] = []

    def fail() -> None:
        message = "no such host"
        raise OSError(message)

    def call(_: None) -> None:
        try:
            module.call(fail, discard=print, timeout=LONG)
        except OSError as error:
            caught.append(str(error))

    fibers.serve(call)(None)
    while not caught:
        fibers.run()

    assert caught == ["no such host"]


def test_a_result_for_which_nobody_waits_any_more_is_discarded(fibers: Fibers) -> None:
    may_end, has_ended = threading.Event(), threading.Event()
    discarded: list[str] = []

    def connect() -> str:
        assert may_end.wait(LONG)
        return "a connection"

    def discard(result: str) -> None:
        discarded.append(result)
        has_ended.set()

    fibers.serve(lambda _: module.call(connect, discard=discard, timeout=LONG))(None)
    fibers.run(0.0)
    fibers.close()
    may_end.set()

    assert has_ended.wait(LONG)
    assert discarded == ["a connection"]


def test_the_end_finds_fibers_where_they_wait(
    fibers: Fibers, pair: tuple[socket.socket, socket.socket]
) -> None:
    ended: list[str] = []

    def read(_: None) -> None:
        try:
            this().wait_for(pair[0].fileno(), READABLE)
        finally:
            # Nothing may wait any more: there is nobody who would go on with it.
            with pytest.raises(GreenletExit):
                this().sleep_until(boottime() + LONG)
            ended.append("reader")

    fibers.serve(read)(None)
    fibers.serve(ended.append)
    fibers.run(0.0)
    fibers.close()

    assert ended == ["reader"]
    fibers.wake()


def test_what_a_fiber_raises_its_thread_raises(fibers: Fibers) -> None:
    def fail(number: int) -> None:
        raise ZeroDivisionError(number)

    fibers.serve(fail)(1)

    with pytest.raises(ZeroDivisionError):
        fibers.run(LONG)


def test_fibers_that_never_ran_can_be_closed() -> None:
    fibers = Fibers()
    fibers.serve(print)("nobody reads this")
    fibers.close()
