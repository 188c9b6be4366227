"""One fault after another, on the same harvesters, under load."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest

from ..machine import nightly
from ..processes import Process
from .auditing import Audited
from .harvesters import HEARTBEAT_TIMEOUT, SESSION_TIMEOUT, Harvesters
from .tables import OutboxTable
from .writing import Writers

WINDOW = 200


class Fleet:
    """Harvesters and the faults that befall them."""

    def __init__(
        self, harvesters: Harvesters, table: OutboxTable, chance: random.Random
    ) -> None:
        self._harvesters = harvesters
        self._table = table
        self._chance = chance
        self._running = harvesters.start_ready(3)

    def crash(self) -> None:
        harvester = self._pick()
        harvester.kill()
        self._replace(harvester)

    def restart(self) -> None:
        harvester = self._pick()
        harvester.terminate()
        assert harvester.exit_code() == 0
        self._replace(harvester)

    def restart_impatiently(self) -> None:
        """A supervisor that gives no time."""
        harvester = self._pick()
        harvester.terminate()
        harvester.terminate()
        assert harvester.exit_code() in {0, 143}
        self._replace(harvester)

    def pause(self) -> None:
        harvester = self._pick()
        harvester.pause()
        pause = self._chance.uniform(HEARTBEAT_TIMEOUT, 2 * SESSION_TIMEOUT)
        threading.Event().wait(pause)
        harvester.resume()

    def cut_sessions(self) -> None:
        self._table.end_sessions()

    def lock_table(self) -> None:
        with self._table.connect() as connection, connection.transaction():
            connection.execute("LOCK TABLE outbox")
            connection.execute("SELECT pg_sleep(2.5)")

    def _pick(self) -> Process:
        """The leader, mostly; a fault of a standby matters less."""
        leaders = [h for h in self._running if h.leads]
        anyone = self._chance.random() < 0.3 or not leaders
        harvester = self._chance.choice(self._running if anyone else leaders)
        # Before that it has not taken the signals over from Python's start.
        harvester.wait_for("ready")
        return harvester

    def _replace(self, harvester: Process) -> None:
        self._running.remove(harvester)
        self._running.append(self._harvesters.start())


HARD = {"crash", "restart_impatiently", "pause", "cut_sessions", "lock_table"}


@nightly
@pytest.mark.parametrize("seed", [1, 2])
def test_promises_hold_through_a_bad_day(
    harvesters: Harvesters,
    table: OutboxTable,
    audited: Audited,
    topic: str,
    seed: int,
) -> None:
    harvesters.environment = {
        **harvesters.environment,
        "OUTBOX_MAX_IN_FLIGHT": str(WINDOW),
        "OUTBOX_LEADER_HEADER": "1",
    }
    chance = random.Random(seed)
    fleet = Fleet(harvesters, table, chance)
    faults: list[Callable[[], None]] = [
        *(fleet.crash, fleet.restart, fleet.restart_impatiently),
        *(fleet.pause, fleet.cut_sessions, fleet.lock_table),
    ]
    chance.shuffle(faults)
    with Writers(table, topic, seed=seed) as writers:
        for fault in faults:
            writers.burst(3000)
            table.wait_until_busy()
            fault()
    table.wait_until_empty()

    found = audited(writers)
    assert found.lost == found.phantoms == found.out_of_order == found.spoilt == []
    assert found.duplicates <= WINDOW * len(HARD)
