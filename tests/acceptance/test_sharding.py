"""Several shards: leaders of parts of the keys in several processes."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from ..machine import nightly
from ..processes import Process, manage
from ..services import Topics
from ..waiting import eventually
from .auditing import Audited, deliveries
from .harvesters import MODES, Harvesters, modes
from .tables import OutboxTable
from .writing import Writers

SHARDS = 4

LEADERS = r"leaders: harvester-1 \(shards \d, \d\), harvester-2 \(shards \d, \d\)\n"


@pytest.fixture(
    autouse=True,
    params=modes("pipelined", "one-per-key", "ledger", by_day=["ledger"]),
)
def relay(harvesters: Harvesters, request: pytest.FixtureRequest) -> str:
    """Each relay that can have shards."""
    name = str(request.param)
    harvesters.environment = {**harvesters.environment, **MODES[name]}
    divide(harvesters, SHARDS)
    return name


def divide(harvesters: Harvesters, shards: int) -> None:
    """Have the next processes divide the keys among so many leaders."""
    harvesters.environment = {**harvesters.environment, "OUTBOX_SHARDS": str(shards)}


def led(harvesters: Harvesters) -> dict[str, set[int]]:
    """The shards that each process leads, as far as it has said."""
    found: dict[str, set[int]] = {}
    for harvester in harvesters.all:
        shards = found.setdefault(harvester.name, set())
        for event in harvester.all():
            if event["event"] == "leader_acquired":
                shards.add(event["shard"])
            elif event["event"] in {"leader_revoked", "leader_fenced"}:
                shards.discard(event["shard"])
    return found


def wait_until_led(harvesters: Harvesters, shards: int, *, processes: int = 0) -> None:
    """Return when each shard has one leader, and so many processes lead."""

    def are_led() -> bool:
        found = [of_one for of_one in led(harvesters).values() if of_one]
        count = Counter(shard for of_one in found for shard in of_one)
        is_spread = processes in {0, len(found)}
        return is_spread and count == Counter(range(shards))

    eventually(are_led, what=lambda: f"{led(harvesters)}")


@nightly
def test_processes_share_the_shards_and_keep_every_promise(
    harvesters: Harvesters, table: OutboxTable, audited: Audited, topic: str
) -> None:
    harvesters.start().wait_for("leader_acquired")
    with Writers(table, topic) as writers:
        writers.wait_for(100)
        harvesters.start().wait_for("leader_acquired")
        wait_until_led(harvesters, SHARDS, processes=2)
        said = manage("outbox", "leader", environment=harvesters.environment)
        assert re.fullmatch(LEADERS, said)
        writers.burst(10_000)
        writers.wait_for(200)
    table.wait_until_empty()

    found = audited(writers)
    assert writers.ledger.rolled_back
    assert found.broken == {}
    assert found.duplicates == 0
    assert all(h.all("leader_fenced") == [] for h in harvesters.all)


def test_a_crash_touches_no_shard_of_another_process(
    harvesters: Harvesters,
    table: OutboxTable,
    audited: Audited,
    topic: str,
    relay: str,
) -> None:
    survivor = harvesters.start()
    survivor.wait_for("leader_acquired")
    killed = harvesters.start()
    wait_until_led(harvesters, SHARDS, processes=2)
    kept = led(harvesters)[survivor.name]
    with Writers(table, topic) as writers:
        writers.burst(10_000)
        table.wait_until_busy()
        killed_at = killed.kill()
        eventually(
            lambda: led(harvesters)[survivor.name] == {*range(SHARDS)},
            what=lambda: f"{led(harvesters)}",
        )
        writers.wait_for(200)
    table.wait_until_empty()

    found = audited(writers)
    assert found.lost == found.phantoms == found.out_of_order == found.spoilt == []
    if relay == "ledger":
        assert found.duplicates == 0
    later = survivor.all("leader_revoked", "leader_fenced", after=killed_at)
    assert [event for event in later if event["shard"] in kept] == []


def test_the_number_of_shards_changes_under_load(
    harvesters: Harvesters, table: OutboxTable, audited: Audited, topic: str
) -> None:
    with Writers(table, topic) as writers:
        old: list[Process] = []
        for shards in (1, 4, 2):
            divide(harvesters, shards)
            new = [harvesters.start() for _ in range(2)]
            if old:
                for harvester in new:
                    harvester.wait_for_log("another number")
            writers.burst(5_000)
            for harvester in old:
                harvester.terminate()
                assert harvester.exit_code() == 0
            wait_until_led(harvesters, shards)
            writers.wait_for(100)
            if old:
                assert last_end_of(old) < first_begin_of(new)
            old = new
    table.wait_until_empty()

    found = audited(writers)
    assert found.broken == {}
    assert found.duplicates == 0
    assert all(h.all("leader_fenced") == [] for h in harvesters.all)


def last_end_of(processes: list[Process]) -> int:
    """When the last of these leaders gave its shard up (boottime_ns)."""
    ended = [event for one in processes for event in one.all("leader_revoked")]
    return max(event["boottime_ns"] for event in ended)


def first_begin_of(processes: list[Process]) -> int:
    """When the first of these processes led a shard (boottime_ns)."""
    begun = [event for one in processes for event in one.all("leader_acquired")]
    return min(event["boottime_ns"] for event in begun)


SLOW_DELETE = """
CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(1);
    RETURN OLD;
END $$;
CREATE TRIGGER wait BEFORE DELETE ON outbox FOR EACH ROW EXECUTE FUNCTION wait();
"""


@nightly
def test_leaders_of_another_number_go_on_where_killed_ones_were(
    harvesters: Harvesters, table: OutboxTable, topics: Topics, topic: str, relay: str
) -> None:
    table.execute(SLOW_DELETE)
    writers = Writers(table, topic)
    sent = 0
    for shards in (1, 4, 2):
        divide(harvesters, shards)
        harvesters.start()
        wait_until_led(harvesters, shards)
        table.wait_until_empty()
        with table.connect() as connection:
            # Rows are sent and stay in the table.
            connection.execute("SELECT pg_advisory_lock(1)")
            writers.burst(100)
            sent += 100
            wait_until_sent(topics, topic, sent)
            killed = harvesters.all.pop()
            killed.kill()
            killed.end()
            # Else the server would end the statement of a dead client.
            table.end_sessions()
        assert table.count() >= 100
    harvesters.start()
    table.wait_until_empty()

    found = ids_of(topics, topic)
    assert len({*found}) == sent
    if relay == "ledger":
        assert len(found) == sent


def wait_until_sent(topics: Topics, topic: str, records: int) -> None:
    """Return when the topic has so many records, each once or more often."""
    eventually(lambda: len({*ids_of(topics, topic)}) == records, what="the records")


def ids_of(topics: Topics, topic: str) -> list[int]:
    """The ids of the records in the topic that readers of committed ones see."""
    return [delivery.id for delivery in deliveries(topics.read(topic))]
