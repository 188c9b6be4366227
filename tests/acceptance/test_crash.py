"""Processes that die without a word: kill -9."""

from __future__ import annotations

import pytest

from ..machine import nightly
from ..waiting import eventually
from .auditing import Audited
from .groups import Groups
from .harvesters import MODES, SESSION_TIMEOUT, Harvesters
from .tables import OutboxTable
from .writing import Writers

WINDOW = 200
"""W: records produced and not settled."""

TAKEOVER_NS = int((SESSION_TIMEOUT + 3) * 1e9)


def test_a_crashed_leader_loses_nothing_and_repeats_little(
    harvesters: Harvesters, table: OutboxTable, audited: Audited, topic: str
) -> None:
    harvesters.environment = {
        **harvesters.environment,
        "OUTBOX_MAX_IN_FLIGHT": str(WINDOW),
    }
    leader, *_ = harvesters.start_ready(3)
    with Writers(table, topic) as writers:
        writers.wait_for(200)
        writers.burst(10_000)
        table.wait_until_busy()
        crashed_at = leader.kill()
        left = table.count()
        _, acquired = harvesters.wait_for_leader(after=crashed_at)
        harvesters.start()
        writers.wait_for(300)
    table.wait_until_empty()

    assert left > 0, "the crash came too late to be one under load"
    found = audited(writers)
    assert found.broken == {}
    assert found.duplicates <= WINDOW
    assert acquired["boottime_ns"] - crashed_at <= TAKEOVER_NS


@nightly
@pytest.mark.parametrize("mode", ["pipelined", "one-per-key", "table"])
def test_a_crash_of_each_leader_in_turn(
    harvesters: Harvesters, table: OutboxTable, audited: Audited, topic: str, mode: str
) -> None:
    harvesters.environment = {
        **harvesters.environment,
        **MODES[mode],
        "OUTBOX_MAX_IN_FLIGHT": str(WINDOW),
    }
    leader, *_ = harvesters.start_ready(3)
    with Writers(table, topic) as writers:
        for _ in range(2):
            writers.burst(3000)
            crashed_at = leader.kill()
            leader, acquired = harvesters.wait_for_leader(after=crashed_at)
            assert acquired["boottime_ns"] - crashed_at <= TAKEOVER_NS
    table.wait_until_empty()

    found = audited(writers, is_pipelined=mode == "pipelined")
    assert found.broken == {}
    assert found.duplicates <= 2 * WINDOW


@nightly
def test_a_crashed_standby_disturbs_nobody(
    harvesters: Harvesters,
    table: OutboxTable,
    audited: Audited,
    topic: str,
    groups: Groups,
) -> None:
    leader, standby, other = harvesters.start_ready(3)
    group = harvesters.environment["OUTBOX_LEADER_GROUP"]
    eventually(lambda: groups.settled(group) == 3)
    with Writers(table, topic) as writers:
        standby.kill()
        eventually(lambda: groups.settled(group) == 2)
        writers.wait_for(200)
    table.wait_until_empty()

    found = audited(writers)
    assert found.broken == {}
    assert found.duplicates == 0
    kinds = {event["event"] for event in leader.events}
    assert kinds <= {"ready", "leader_acquired", "meter_read"}
    assert other.all("leader_acquired") == []
