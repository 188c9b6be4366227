"""Several shards: who leads which, and which rows each of them shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import pytest

from django_outbox.election.elector import Elector
from django_outbox.election.neli import State
from django_outbox.election.settings import ElectionSettings
from django_outbox.election.solo import SoloMembership
from django_outbox.election.term import LeaderTerm
from django_outbox.events import Event
from django_outbox.kafka.group_members import client_id, shards_of
from django_outbox.message.record import Record, Sweep
from django_outbox.relay.memory_marks import MemoryMarks
from tests.fakes.membership import FakeGroup
from tests.fakes.timeline import Timeline
from tests.fakes.unmarked import InMemoryUnmarked

SHARDS: Final = 4


@dataclass
class Process:
    """One process of the election, and what it tells."""

    group: FakeGroup
    name: str
    events: list[Event] = field(default_factory=list)
    drained: list[LeaderTerm] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.membership = self.group.member(self.name)
        self.elector = Elector(
            ElectionSettings(name=self.name, shards=SHARDS, heartbeat_timeout=1.0),
            self.membership,
            clock=self.group.time,
            on_event=self.events.append,
            barrier=self.drained.append,
            can_join=lambda: True,
            wait=self.group.time.advance,
        )

    @property
    def led(self) -> set[int]:
        """The shards that it leads."""
        states = enumerate(self.elector.states)
        return {shard for shard, state in states if state is State.LEADER}

    def told(self, kind: str) -> list[int]:
        """The shards of its events of a kind."""
        return [event.shard for event in self.events if event.kind == kind]


@pytest.fixture
def group() -> FakeGroup:
    return FakeGroup(Timeline(), shards=SHARDS)


def run(seconds: float, *processes: Process) -> None:
    time = processes[0].group.time
    end = time() + seconds
    while time() < end:
        for process in processes:
            process.elector.step(0.05)


def test_one_process_alone_leads_all_shards(group: FakeGroup) -> None:
    process = Process(group, "a")
    run(3.0, process)

    assert process.led == {0, 1, 2, 3}
    assert process.told("ready") == [0]
    assert len({event.leader_id for event in process.events}) == 1 + SHARDS


def test_a_second_process_gets_half_of_them_in_good_order(group: FakeGroup) -> None:
    a, b = Process(group, "a"), Process(group, "b")
    run(3.0, a)
    run(5.0, a, b)

    assert len(a.led) == len(b.led) == 2
    assert a.led | b.led == {*range(SHARDS)}
    assert {*a.told("leader_revoked")} == b.led
    assert {term.shard for term in a.drained} == b.led
    assert a.told("leader_fenced") == []


def test_a_crash_moves_the_shards_of_that_process_alone(group: FakeGroup) -> None:
    a, b = Process(group, "a"), Process(group, "b")
    run(3.0, a)
    run(5.0, a, b)
    kept, said = a.led, len(a.events)
    b.membership.crash()
    run(6.0, a)

    assert a.led == {*range(SHARDS)}
    later = [(event.kind, event.shard) for event in a.events[said:]]
    moved = {*range(SHARDS)} - kept
    assert sorted(later) == [("leader_acquired", shard) for shard in sorted(moved)]


def test_a_process_that_stops_drains_all_its_shards(group: FakeGroup) -> None:
    a, b = Process(group, "a"), Process(group, "b")
    run(3.0, a)
    run(5.0, a, b)
    ended = a.led
    a.elector.stop()
    run(1.0, b)

    assert ended <= {term.shard for term in a.drained}
    assert b.led == {*range(SHARDS)}


def test_one_that_resigns_from_a_shard_gives_all_of_them_up(group: FakeGroup) -> None:
    a, b = Process(group, "a"), Process(group, "b")
    run(3.0, a)
    run(5.0, a, b)
    shard = min(a.led)
    term = a.elector.leaderships[shard].term
    assert term is not None
    a.elector.leaderships[shard].resign(term.leader_id, reason="no database")
    ended = a.led
    run(3.0, a, b)

    assert ended <= {*a.told("leader_revoked")}
    assert {*b.told("leader_acquired")} == {*range(SHARDS)}


def test_without_kafka_a_process_leads_all_shards() -> None:
    time = Timeline()
    elector = Elector(
        ElectionSettings(name="solo", shards=SHARDS),
        SoloMembership(wait=time.advance),
        clock=time,
        on_event=lambda _: None,
        barrier=lambda _: None,
        can_join=lambda: True,
        wait=time.advance,
    )
    for _ in range(200):
        elector.step(0.05)

    assert elector.states == [State.LEADER] * SHARDS


@pytest.mark.parametrize("shards", [1, 2, 32])
@pytest.mark.parametrize("name", ["host-123", "outbox-shards-0"])
def test_a_client_id_tells_the_number_of_shards(name: str, shards: int) -> None:
    assert shards_of(client_id(name, shards)) == shards


@pytest.mark.parametrize("name", ["", "a-shards-", "a-shards-4-b", "a-shards-x"])
def test_another_client_id_tells_of_one_shard(name: str) -> None:
    assert shards_of(name) == 1


class Reader:
    """The leader of one shard, which reads pages."""

    def __init__(self, table: InMemoryUnmarked, shard: int, now: Timeline) -> None:
        self._marks = MemoryMarks(
            table.of_shard(shard, 2), clock=now, timeline=lambda: ""
        )

    def page(self, *, limit: int = 10) -> list[int]:
        return ids(self._marks.mark("me", limit=limit))

    def swept(self) -> list[int]:
        sweep = Sweep(known=(), passed=(), passed_topics=())
        return ids(self._marks.mark("me", limit=10, sweep=sweep))


def ids(records: Sequence[Record]) -> list[int]:
    return [record.id for record in records]


@pytest.fixture
def now() -> Timeline:
    return Timeline()


@pytest.fixture
def table() -> InMemoryUnmarked:
    return InMemoryUnmarked()


def keys_of(table: InMemoryUnmarked, shard: int) -> list[str]:
    """Names of keys that a shard owns."""
    view = table.of_shard(shard, 2)
    return [
        key
        for key in map(str, range(50))
        if view.is_mine(Record.identified(1, "")._replace(topic="t", key=key))
    ]


def test_each_row_is_shown_by_the_leader_of_its_shard(
    table: InMemoryUnmarked, now: Timeline
) -> None:
    written = [table.insert("t", str(n % 10), "v").id for n in range(100)]
    readers = [Reader(table, shard, now) for shard in range(2)]
    pages = [[reader.page(limit=7) for _ in range(20)] for reader in readers]
    shown = [[number for page in read for number in page] for read in pages]

    assert sorted(shown[0] + shown[1]) == written
    assert all(sorted(read) == read and read for read in shown)
    assert all(len(page) <= 7 for read in pages for page in read)


def test_a_row_that_is_committed_late_is_shown_before_later_pages(
    table: InMemoryUnmarked, now: Timeline
) -> None:
    mine, other = keys_of(table, 0)[0], keys_of(table, 1)[0]
    reader = Reader(table, 0, now)
    late = table.begin()
    late_id = late.insert("t", mine, "v").id
    first = table.insert("t", mine, "v").id
    table.insert("t", other, "v")
    assert reader.page() == [first]

    now.advance(1.0)
    assert reader.page() == []
    late.commit()
    last = table.insert("t", mine, "v").id
    assert reader.page() == [late_id, last]


def test_rows_that_another_leader_has_purged_hide_no_late_one(
    table: InMemoryUnmarked, now: Timeline
) -> None:
    mine, other = keys_of(table, 0)[0], keys_of(table, 1)[0]
    reader = Reader(table, 0, now)
    rows = [table.insert("t", other, "v")]
    late = table.begin()
    late_id = late.insert("t", mine, "v").id
    rows.append(table.insert("t", other, "v"))
    first = table.insert("t", mine, "v").id
    table.purge("other", rows)
    assert reader.page() == [first]

    late.commit()
    assert reader.page() == [late_id]


@pytest.fixture
def behind_others(table: InMemoryUnmarked, now: Timeline) -> Reader:
    """The first shard's reader, before 100 rows of another shard."""
    other = keys_of(table, 1)[0]
    for _ in range(100):
        table.insert("t", other, "v")
    return Reader(table, 0, now)


def test_a_shard_without_rows_follows_the_others(
    table: InMemoryUnmarked, behind_others: Reader
) -> None:
    mine, reader = keys_of(table, 0)[0], behind_others
    assert [reader.page(limit=10) for _ in range(6)] == [[]] * 6

    number = table.insert("t", mine, "v").id
    assert reader.page() == [number]


def test_one_page_passes_many_rows_of_other_shards(
    table: InMemoryUnmarked, behind_others: Reader
) -> None:
    """Else it would pass a page of them in each interval of an empty table."""
    number = table.insert("t", keys_of(table, 0)[0], "v").id
    assert behind_others.page(limit=10) == [number]


def test_a_sweep_finds_rows_of_its_shard_only(
    table: InMemoryUnmarked, now: Timeline
) -> None:
    mine, other = keys_of(table, 0)[0], keys_of(table, 1)[0]
    reader = Reader(table, 0, now)
    last = table.insert("t", mine, "v", record_id=10).id
    assert reader.page() == [last]

    table.insert("t", other, "v", record_id=4)
    found = table.insert("t", mine, "v", record_id=5).id
    assert reader.swept() == [found, last]
