"""A harvester that leads some of several shards: its parts on fake services."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import NoReturn

import pytest

from django_outbox.clock import boottime
from django_outbox.election.ports import Listener
from django_outbox.election.solo import SoloMembership
from django_outbox.events import Event, LeaderRevoked, MeterRead
from django_outbox.harvester.adapters import Adapters
from django_outbox.harvester.harvester import Harvester
from django_outbox.message.record import StagingDeadlines
from django_outbox.relay.memory_marks import MemoryMarks
from django_outbox.relay.releaser import MAX_INTERVAL
from django_outbox.settings.options import OutboxSettings
from tests.fakes.producer import InMemoryLog, InMemoryProducer
from tests.fakes.unmarked import InMemoryUnmarked

from .samples import record

SHARDS = 3


class Owner(SoloMembership):
    """Owns some of the partitions."""

    def __init__(self, owned: set[int]) -> None:
        super().__init__()
        self._owned = owned
        self.to_give_up: tuple[int, ...] = ()
        """Shards that the next poll gives to another member."""

    def join(self, *listeners: Listener) -> None:
        super().join(*(self._only(n, one) for n, one in enumerate(listeners)))

    def poll(self, timeout: float) -> None:
        super().poll(timeout)
        shards, self.to_give_up = self.to_give_up, ()
        self.leaving = frozenset(shards)
        for shard in shards:
            self._listeners[shard].revoked()
        self.leaving = frozenset()

    def _only(self, shard: int, listener: Listener) -> Listener:
        return listener if shard in self._owned else Nobody()


class Nobody:
    """The listener of a partition that another member owns."""

    def assigned(self) -> None: ...

    def revoked(self) -> None: ...

    def lost(self) -> None: ...

    def heard(self, *_: object) -> None: ...

    def confirmed(self, _: int) -> None: ...


class Staging:
    """Tables of staged messages; notes that they are asked for what is due."""

    def __init__(self) -> None:
        self.asked = threading.Event()

    def agenda(self) -> StagingDeadlines | None:
        self.asked.set()
        return None

    def release(self, *, limit: int) -> NoReturn:
        raise AssertionError(limit)

    expire = clear = forget = release

    def close(self) -> None: ...


class Bench:
    """Starts harvesters that lead some shards of one table."""

    def __init__(self) -> None:
        self.table = InMemoryUnmarked()
        self.log = InMemoryLog()
        self.staging = Staging()
        self.events: list[Event] = []
        self.receive: Callable[[Event], object] = lambda _: None
        self._news = threading.Condition()
        self._made: list[Harvester] = []

    def start(self, *owned: int, **options: float) -> tuple[Harvester, Owner]:
        owner = Owner({*owned})
        harvester = Harvester(
            options=OutboxSettings(
                SHARDS=SHARDS,
                METER_INTERVAL=0.1,
                **options,  # type: ignore[arg-type]
            ),
            adapters=Adapters(
                table=lambda _: self.table,
                reading=lambda _, __, shard: self._reading(shard),
                producer=lambda _: InMemoryProducer(self.log),
                transactions=_not_in_use,
                membership=lambda: owner,
                staging=lambda: self.staging,
            ),
            observers=[self._observe],
            send=self._send,
        )
        self._made.append(harvester)
        harvester.start()
        return harvester, owner

    @property
    def readings(self) -> list[MeterRead]:
        return [event for event in self.events if isinstance(event, MeterRead)]

    @property
    def ended(self) -> list[tuple[str, int]]:
        """How terms have ended, and of which shards."""
        kinds = {"leader_revoked", "leader_fenced"}
        return [(e.kind, e.shard) for e in self.events if e.kind in kinds]

    @property
    def seconds(self) -> float:
        """From the first reading to the last."""
        times = [reading.boottime_ns for reading in self.readings]
        return (times[-1] - times[0]) / 1e9 if times else 0.0

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Return when an event makes this true."""
        with self._news:
            assert self._news.wait_for(condition, 60)

    def end(self) -> None:
        for harvester in self._made:
            harvester.stop()
            assert harvester.join(60)

    def _reading(self, shard: int) -> MemoryMarks:
        view = self.table.of_shard(shard, SHARDS)
        return MemoryMarks(view, clock=boottime, timeline=self.table.database_timeline)

    def _observe(self, event: Event) -> None:
        with self._news:
            self.events.append(event)
            self._news.notify_all()

    def _send(self, event: Event) -> int:
        self.receive(event)
        return 0


def _not_in_use(*_: object) -> NoReturn:
    raise AssertionError("only with DELIVERY = exactly-once")


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.end()


def test_two_processes_send_all_rows_each_those_of_its_shards(bench: Bench) -> None:
    for number in range(300):
        bench.table.insert("t", f"key-{number % 30}", f"{number}")
    bench.start(0, 2)
    bench.start(1)
    bench.wait_for(lambda: not bench.table.records())

    values = [int(message.value or b"") for message in bench.log.of("t")]
    assert sorted(values) == [*range(300)]
    for key in range(30):
        of_key = [value for value in values if value % 30 == key]
        assert of_key == sorted(of_key)


def test_each_shard_has_readings_of_its_own(bench: Bench) -> None:
    for number in range(300):
        bench.table.insert("t", f"key-{number}", f"{number}")
    bench.start(0, 2)
    bench.start(1)

    def latest() -> dict[int, int]:
        return {reading.shard: reading.purged for reading in bench.readings}

    bench.wait_for(lambda: sum(latest().values()) == 300)
    assert latest().keys() == {0, 1, 2}
    assert all(latest().values())
    assert len({reading.leader_id for reading in bench.readings}) == SHARDS


def test_only_the_leader_of_the_first_shard_releases_what_is_due(bench: Bench) -> None:
    bench.start(1, 2)
    bench.wait_for(lambda: bench.seconds > 2 * MAX_INTERVAL)
    assert not bench.staging.asked.is_set()

    bench.start(0)
    assert bench.staging.asked.wait(60)


def test_a_receiver_that_takes_long_fences_none_of_the_other_shards(
    bench: Bench,
) -> None:
    """It delays the next leader of its shard, for a part of the others' leases."""
    may_return = threading.Event()

    def receive(event: Event) -> None:
        if isinstance(event, LeaderRevoked) and event.shard == 0:
            may_return.wait(60)

    bench.receive = receive
    _, owner = bench.start(0, 1, 2, HEARTBEAT_TIMEOUT=4.0, REVOKE_TIMEOUT=20.0)
    bench.wait_for(lambda: {reading.shard for reading in bench.readings} == {0, 1, 2})
    owner.to_give_up = (0, 1)
    bench.wait_for(lambda: len(bench.ended) >= 2)
    may_return.set()
    seen = len(bench.readings)
    bench.wait_for(lambda: len(bench.readings) > seen)

    assert bench.ended == [("leader_revoked", 0), ("leader_revoked", 1)]
    first, second = (e for e in bench.events if isinstance(e, LeaderRevoked))
    assert second.boottime_ns - first.boottime_ns > 0.5e9, "it is waited for"


def test_a_leader_that_drains_longer_than_its_lease_is_fenced_meanwhile(
    bench: Bench,
) -> None:
    """The broker may have lost it, too, and then another one leads."""
    locked = bench.table.insert("t", "key", "value")
    bench.table.locked_ids = {locked.id}
    of_shard = bench.table.of_shard
    (shard,) = (n for n in range(SHARDS) if of_shard(n, SHARDS).is_mine(locked))
    _, owner = bench.start(shard, DRAIN_TIMEOUT=600.0, MAX_POLL_INTERVAL=1000.0)
    bench.wait_for(lambda: bool(bench.log.messages and bench.readings))

    owner.to_give_up = (shard,)
    bench.wait_for(lambda: bool(bench.ended))
    assert bench.ended == [("leader_fenced", shard)]
    assert bench.table.records() == [locked], "it drains for ten minutes"
    bench.table.locked_ids = set()


def test_a_process_that_stops_is_fenced_in_each_shard_while_one_drains(
    bench: Bench,
) -> None:
    """Nobody proves the others meanwhile, so their leases end, too."""
    first = bench.table.of_shard(0, SHARDS)
    key = next(k for k in map(str, range(30)) if first.is_mine(record(1, k, topic="t")))
    locked = bench.table.insert("t", key, "value")
    bench.table.locked_ids = {locked.id}
    harvester, _ = bench.start(0, 1, 2, DRAIN_TIMEOUT=600.0, MAX_POLL_INTERVAL=1000.0)
    bench.wait_for(lambda: {reading.shard for reading in bench.readings} == {0, 1, 2})
    bench.wait_for(lambda: bool(bench.log.messages))

    harvester.stop()
    bench.wait_for(lambda: len(bench.ended) == SHARDS)
    assert {*bench.ended} == {("leader_fenced", shard) for shard in range(SHARDS)}
    assert bench.table.records() == [locked], "it drains for ten minutes"
    bench.table.locked_ids = set()


@pytest.mark.parametrize("kept", [(), (2,)])
def test_shards_that_are_given_up_together_send_no_more(
    bench: Bench, kept: tuple[int, ...]
) -> None:
    """One after the other is given up, and nobody proves those that come later."""
    given_up = {0, 1, 2} - {*kept}
    keys = [
        key
        for key in map(str, range(30))
        if any(
            bench.table.of_shard(shard, SHARDS).is_mine(record(1, key, topic="t"))
            for shard in given_up
        )
    ]
    sent_late: list[bool] = []

    def receive(event: Event) -> None:
        if isinstance(event, LeaderRevoked) and not sent_late:
            known = len(bench.log.messages)
            for key in keys:
                bench.table.insert("t", key, "late")
            end = boottime() + 0.5
            while boottime() < end and len(bench.log.messages) == known:
                time.sleep(0.01)
            sent_late.append(len(bench.log.messages) > known)

    bench.receive = receive
    harvester, owner = bench.start(0, 1, 2, REVOKE_TIMEOUT=20.0)
    bench.wait_for(lambda: {reading.shard for reading in bench.readings} == {0, 1, 2})
    if kept:
        owner.to_give_up = (*given_up,)
        bench.wait_for(lambda: len(bench.ended) == len(given_up))
    harvester.stop()
    assert harvester.join(60)

    assert sent_late == [False]


def test_threads_that_cannot_be_started_end_it_in_order(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, start = {*threading.enumerate()}, threading.Thread.start

    def start_some(thread: threading.Thread) -> None:
        if thread.name == "outbox-read-1":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_some)
    harvester, _ = bench.start(0, 1, 2)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        harvester.join(60)
    assert [event.kind for event in bench.events] == ["stopped"]
    assert {*threading.enumerate()} <= before
