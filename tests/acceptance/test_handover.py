"""Leadership that changes hands in good order."""

from __future__ import annotations

from ..machine import nightly
from .auditing import Audited
from .harvesters import Harvesters
from .tables import OutboxTable
from .writing import Writers

HANDOVER_NS = 2_000_000_000


def test_a_rolling_restart_repeats_nothing(
    harvesters: Harvesters, table: OutboxTable, audited: Audited, topic: str
) -> None:
    # A burst has to take longer than a shutdown.
    harvesters.environment = {**harvesters.environment, "OUTBOX_MAX_IN_FLIGHT": "100"}
    old = harvesters.start_ready(3)
    handovers = []
    with Writers(table, topic) as writers:
        for harvester in old:
            leads = len(harvester.all("leader_acquired")) == 1
            if leads:
                writers.burst(15_000)
                table.wait_until_busy()
            asked_at = harvester.terminate()
            if leads:
                revoked = harvester.wait_for("leader_revoked")
                assert table.count() > 100, "it was not under load"
                _, acquired = harvesters.wait_for_leader(after=asked_at)
                assert revoked["boottime_ns"] < acquired["boottime_ns"]
                assert revoked["leader_id"] != acquired["leader_id"]
                handovers.append(acquired["boottime_ns"] - asked_at)
            assert harvester.exit_code() == 0
            assert len(harvester.all("leader_revoked")) == leads
            assert harvester.events[-1]["event"] == "stopped"
            harvesters.start().wait_for("ready")
        writers.wait_for(100)
    table.wait_until_empty()

    found = audited(writers)
    assert found.broken == {}
    assert found.duplicates == 0
    assert handovers
    assert max(handovers) <= HANDOVER_NS
    for unwanted in ("leader_fenced", "leader_refreshed"):
        assert [h.all(unwanted) for h in harvesters.all] == [[]] * 6


@nightly
def test_the_next_term_begins_after_the_last_one_was_revoked(
    harvesters: Harvesters,
) -> None:
    first, _ = harvesters.start_ready(2)
    asked_at = first.terminate()
    _, acquired = harvesters.wait_for_leader(after=asked_at)
    revoked = first.wait_for("leader_revoked")
    led = first.wait_for("leader_acquired")
    assert revoked["leader_id"] == led["leader_id"]
    assert revoked["boottime_ns"] < acquired["boottime_ns"]
    assert acquired["leader_id"] != led["leader_id"]
    assert acquired["boottime_ns"] - asked_at <= HANDOVER_NS


@nightly
def test_processes_that_join_and_leave_do_not_disturb_the_leader(
    harvesters: Harvesters, table: OutboxTable, audited: Audited, topic: str
) -> None:
    (leader,) = harvesters.start_ready(1)
    with Writers(table, topic) as writers:
        standbys = [harvesters.start() for _ in range(2)]
        for standby in standbys:
            standby.wait_for("ready")
        writers.wait_for(300)
        for standby in standbys:
            standby.terminate()
            assert standby.exit_code() == 0
        writers.wait_for(300)
    table.wait_until_empty()

    found = audited(writers)
    assert found.broken == {}
    assert found.duplicates == 0
    kinds = {event["event"] for event in leader.events}
    assert kinds <= {"ready", "leader_acquired", "meter_read"}
