"""
A leader that stands still: SIGSTOP, for a while, and SIGCONT.

A trigger on the table notes who touched a row, by the connection's
application name, so that an act of the paused leader cannot hide.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

import pytest

from ..services import Topics
from ..waiting import eventually
from .auditing import Audited, Delivery, audit, deliveries
from .harvesters import HEARTBEAT_TIMEOUT, MODES, SESSION_TIMEOUT, Harvesters, modes
from .lag import Measure
from .tables import OutboxTable
from .writing import Writers

WINDOW = 200

WATCH = """
CREATE TABLE act (at bigserial, actor text, leader_id uuid);
CREATE FUNCTION note_act() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO act (actor, leader_id) VALUES (
        current_setting('application_name'),
        CASE TG_OP WHEN 'UPDATE' THEN NEW.leader_id ELSE OLD.leader_id END
    );
    RETURN NULL;
END $$;
CREATE TRIGGER note_act AFTER UPDATE OR DELETE ON {outbox}
    FOR EACH ROW EXECUTE FUNCTION note_act();
"""


@pytest.fixture
def environment(environment: dict[str, str]) -> Mapping[str, str]:
    """Messages tell who sent them."""
    return {
        **environment,
        "OUTBOX_LEADER_HEADER": "1",
        "OUTBOX_MAX_IN_FLIGHT": str(WINDOW),
    }


def acts(table: OutboxTable) -> list[tuple[str, str]]:
    """(harvester, leader id) of each act on a row, in order."""
    rows = table.execute("SELECT actor, leader_id::text FROM act ORDER BY at")
    return [(actor.split()[-1], leader_id) for actor, leader_id in rows]


def after_its_successor(sent: list[Delivery], leader_id: str) -> list[Delivery]:
    """What a leader sent to a partition in which another has written since."""
    late = []
    successors: set[int] = set()
    begun: set[int] = set()
    for delivery in sent:
        if delivery.header("outbox-leader-id") == leader_id:
            begun.add(delivery.partition)
            if delivery.partition in successors:
                late.append(delivery)
        elif delivery.partition in begun:
            successors.add(delivery.partition)
    return late


@pytest.mark.parametrize("mode", modes("pipelined", "one-per-key", "table"))
def test_a_paused_leader_fences_itself_before_it_acts_again(
    harvesters: Harvesters,
    table: OutboxTable,
    topics: Topics,
    topic: str,
    measure: Measure,
    mode: str,
) -> None:
    table.execute(WATCH)
    harvesters.environment = {**harvesters.environment, **MODES[mode]}
    paused, *_ = harvesters.start_ready(3)
    led = paused.wait_for("leader_acquired")
    with Writers(table, topic) as writers:
        writers.burst(10_000)
        table.wait_until_busy()
        paused_at = paused.pause()
        left = table.count()
        successor, acquired = harvesters.wait_for_leader(after=paused_at)
        # The successor has sent what the paused leader had in hand.
        eventually(lambda: table.count() < left - WINDOW)
        resumed_at = paused.resume()
        fenced = paused.wait_for("leader_fenced", after=resumed_at)
        writers.burst(1000)
        writers.wait_for(100)
    table.wait_until_empty()

    assert acquired["boottime_ns"] - paused_at <= (SESSION_TIMEOUT + 3) * 1e9
    assert fenced["leader_id"] == led["leader_id"]
    # It says nothing as a leader between its return and its fence, or later.
    assert {event["event"] for event in paused.all(*ALL_KINDS, after=resumed_at)} <= {
        "leader_fenced"
    }
    if mode == "table":
        # There nobody but the successor has touched a row since its first act; with
        # marks in memory a late purge deletes what is in the log.
        done = acts(table)
        first = done.index((successor.name, acquired["leader_id"]))
        assert {actor for actor, _ in done[first:]} == {successor.name}
        assert {actor for actor, _ in done[:first]} == {paused.name}
    # In the log, a late message repeats one that was sent before.
    sent = deliveries(topics.read(topic))
    measure(writers.ledger, sent)
    late = after_its_successor(sent, led["leader_id"])
    assert len(late) <= WINDOW
    found = audit(
        writers.ledger,
        [delivery for delivery in sent if delivery not in late],
        is_pipelined=mode == "pipelined",
    )
    assert found.broken == {}
    assert found.duplicates + len(late) <= WINDOW


ALL_KINDS = (
    *("ready", "leader_acquired", "leader_refreshed", "leader_revoked"),
    *("leader_fenced", "meter_read", "record_parked", "stopped"),
)


def test_a_pause_that_no_session_outlasts_ends_in_a_new_term(
    harvesters: Harvesters, table: OutboxTable, audited: Audited, topic: str
) -> None:
    (leader,) = harvesters.start_ready(1)
    first = leader.wait_for("leader_acquired")
    with Writers(table, topic) as writers:
        writers.burst(500)
        leader.pause()
        # Above the heartbeat time-out, below the session's.
        threading.Event().wait((HEARTBEAT_TIMEOUT + SESSION_TIMEOUT) / 2)
        resumed_at = leader.resume()
        fenced = leader.wait_for("leader_fenced", after=resumed_at)
        again = leader.wait_for("leader_acquired", after=resumed_at)
        writers.wait_for(50)
    table.wait_until_empty()

    assert fenced["leader_id"] == first["leader_id"]
    assert again["leader_id"] != first["leader_id"]
    assert fenced["boottime_ns"] < again["boottime_ns"]
    found = audited(writers)
    assert found.broken == {}
    assert found.duplicates <= WINDOW


def test_a_pause_below_the_heartbeat_timeout_changes_nothing(
    harvesters: Harvesters, table: OutboxTable, audited: Audited, topic: str
) -> None:
    harvesters.environment = {
        **harvesters.environment,
        "OUTBOX_SESSION_TIMEOUT": "6",
        "OUTBOX_HEARTBEAT_TIMEOUT": "2.5",
    }
    (leader,) = harvesters.start_ready(1)
    with Writers(table, topic) as writers:
        for _ in range(2):
            writers.burst(500)
            leader.pause()
            threading.Event().wait(1.25)
            leader.resume()
            writers.wait_for(100)
    table.wait_until_empty()

    found = audited(writers)
    assert found.broken == {}
    assert found.duplicates == 0
    kinds = {event["event"] for event in leader.events}
    assert kinds <= {"ready", "leader_acquired", "meter_read"}
