"""A harvester that leads some of several shards: its parts on fake services."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import NoReturn

import pytest

from django_outbox.clock import boottime
from django_outbox.election.ports import Listener
from django_outbox.election.solo import SoloMembership
from django_outbox.events import Event, MeterRead
from django_outbox.harvester.adapters import Adapters
from django_outbox.harvester.harvester import Harvester
from django_outbox.message.record import StagingDeadlines
from django_outbox.relay.memory_marks import MemoryMarks
from django_outbox.relay.releaser import LONGEST
from django_outbox.settings.options import OutboxSettings
from tests.fakes.producer import InMemoryLog, InMemoryProducer
from tests.fakes.unmarked import InMemoryUnmarked

SHARDS = 3


class Owner(SoloMembership):
    """Owns some of the partitions."""

    def __init__(self, owned: set[int]) -> None:
        super().__init__()
        self._owned = owned

    def join(self, *listeners: Listener) -> None:
        super().join(*(self._only(n, one) for n, one in enumerate(listeners)))

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
        self.readings: list[MeterRead] = []
        self._news = threading.Condition()
        self._made: list[Harvester] = []

    def start(self, *owned: int) -> None:
        harvester = Harvester(
            options=OutboxSettings(SHARDS=SHARDS, METER_INTERVAL=0.1),
            adapters=Adapters(
                table=lambda _: self.table,
                reading=lambda _, __, shard: self._reading(shard),
                producer=lambda _: InMemoryProducer(self.log),
                transactions=_not_in_use,
                membership=lambda: Owner({*owned}),
                staging=lambda: self.staging,
            ),
            observers=[self._observe],
            send=lambda _: 0,
        )
        self._made.append(harvester)
        harvester.start()

    @property
    def seconds(self) -> float:
        """From the first reading to the last."""
        times = [reading.boottime_ns for reading in self.readings]
        return (times[-1] - times[0]) / 1e9 if times else 0.0

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Return when a reading makes this true."""
        with self._news:
            assert self._news.wait_for(condition, 60)

    def end(self) -> None:
        for harvester in self._made:
            harvester.stop()
            assert harvester.join(60)

    def _reading(self, shard: int) -> MemoryMarks:
        view = self.table.of_shard(shard, SHARDS)
        return MemoryMarks(view, clock=boottime, timeline=self.table.history)

    def _observe(self, event: Event) -> None:
        with self._news:
            if isinstance(event, MeterRead):
                self.readings.append(event)
            self._news.notify_all()


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
    bench.wait_for(lambda: bench.seconds > 2 * LONGEST)
    assert not bench.staging.asked.is_set()

    bench.start(0)
    assert bench.staging.asked.wait(60)
