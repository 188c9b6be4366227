"""
One history: everything that a plan sets up, and its course to the end.

`history.py` plays it; `ledger_world.py` has the same for the ledger relay.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random

from django_outbox.relay.engine import READ_AHEAD
from tests.fakes.membership import FakeGroup
from tests.fakes.timeline import Timeline

from . import timing
from .broker import Broker
from .faults import inject, mend
from .node import WAYS, Node
from .plan import Fault, Plan, make_plan
from .process import Process
from .promises import Promises
from .row_trouble import RowTrouble
from .table import Table
from .threads import Threads
from .writers import Writers


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What one history came to."""

    plan: Plan
    broken: str = ""
    """The promise that did not hold, or nothing."""
    faults: Counter[str] = field(default_factory=Counter)
    """How many of each kind there were."""
    figures: Counter[str] = field(default_factory=Counter)
    """Rows, duplicates and the like."""
    longest: dict[str, float] = field(default_factory=dict)
    """Of each kind of wait the longest, in seconds."""
    trace: list[str] = field(default_factory=list)


class World:
    """
    All that exists in one history.

    Args:
        within: another world, whose time and dice this one shares.
    """

    def __init__(
        self, plan: Plan, *, is_tracing: bool, within: World | None = None
    ) -> None:
        self.plan = plan
        self.weather = plan.weather
        self.is_tracing = is_tracing
        self.is_cured = False
        """Nothing is poison any more."""
        self.outcome = within.outcome if within else Outcome(plan=plan)
        self.dice = within.dice if within else Random(plan.seed)
        self.time = within.time if within else Timeline()
        self.threads = within.threads if within else Threads(self.time)
        self.read_only_since = 0.0
        """When the table has begun to refuse writes, the last time."""
        self.paused: list[tuple[str, str | None]] = []
        """Topics and keys that an operator has paused."""
        self.dead_until = 0.0
        """No process starts before."""
        self.patience = timing.RECOVERY
        """With nothing broken any more, some row leaves the table at least so often."""
        self.away_until = dict.fromkeys(WAYS, 0.0)
        self.group = self.make_group()
        self.row_trouble = RowTrouble(self)
        self._furnish()
        self.nodes = [Node(self, self.name_of(n)) for n in range(plan.nodes)]

    def make_group(self, *, shards: int = 1) -> FakeGroup:
        """Make a leader group without members."""
        return FakeGroup(
            self.time,
            session_timeout=timing.SESSION_TIMEOUT,
            heartbeat_interval=timing.HEARTBEAT_INTERVAL,
            max_poll_interval=timing.MAX_POLL_INTERVAL,
            latency=self._group_latency,
            shards=shards,
        )

    def _furnish(self) -> None:
        """Set up what depends on the delivery mode."""
        self.table = Table()
        self.promises = Promises(self)
        self.broker = Broker(self)
        self.writers = Writers(self)

    @classmethod
    def planned(cls, seed: int, delivery: str) -> Plan:
        """Throw the dice of one seed."""
        return make_plan(seed, delivery)

    def name_of(self, node: int) -> str:
        return f"node{node}"

    def make_process(self, node: Node) -> Process:
        """Start one life of a harvester."""
        return Process(node)

    @property
    def is_busy(self) -> bool:
        """Whether something is left to do or under way."""
        return bool(self.writers.is_busy or self.table.rows or self.broker.in_transit)

    @property
    def is_table_away(self) -> bool:
        """Whether the application cannot write."""
        return self.time() < max(self.away_until["table"], self.away_until["writes"])

    @property
    def leader(self) -> Node:
        """The node that leads, or any."""
        nodes = (n for n in self.nodes if n.process and n.process.term)
        return next(nodes, self.nodes[0])

    def count(self, kind: str) -> None:
        """Count a fault."""
        self.outcome.faults[kind] += 1

    def trace(self, who: str, what: str) -> None:
        """Write a line of the history."""
        if self.is_tracing:
            self.outcome.trace.append(f"{self.time() - 1000.0:7.4f} {who:7} {what}")

    def jitter(self) -> float:
        """How late a thread runs that has something to do. Seconds."""
        if self.dice.random() < self.weather.thread_late:
            self.count("thread late")
            return self.dice.uniform(0.0, 0.05)
        return self.dice.uniform(0.0002, 0.003)

    def live(self) -> None:
        """Go from the start through all trouble to the end, and judge."""
        self.begin()
        for fault in self.plan.faults:
            self._plan(fault)
        self.threads.run(self.plan.trouble)
        self.mend()
        self._recover()
        self.promises.at_end()

    def begin(self) -> None:
        """Start writers and nodes."""
        self.writers.start()
        for node in self.nodes:
            self.time.after(self.dice.uniform(0.0, 0.2), node.start)

    def inject(self, fault: Fault) -> None:
        """Do one fault of the plan."""
        inject(self, fault)

    def mend(self) -> None:
        """End all trouble."""
        mend(self)

    def _plan(self, fault: Fault) -> None:
        self.time.after(fault.at, lambda: self.inject(fault))

    def _recover(self) -> None:
        """Run until nothing is left to do and nothing is under way."""
        moved_at, left = self.time(), -1
        while self.is_busy:
            if self._is_only_refused():
                self.row_trouble.end()
            if len(self.table.rows) != left:
                moved_at, left = self.time(), len(self.table.rows)
            elif self.time() > moved_at + self.patience:
                self.promises.on_stuck()
            self.threads.run(0.05)

    def _is_only_refused(self) -> bool:
        """Whether a refused row has let all others go, but those of its key."""
        refused = self.row_trouble.refused
        if not refused:
            return False
        rows = self.table.rows
        keys = {rows[id].record.ordering_key for id in refused}
        behind = [row for row in rows.values() if row.record.ordering_key in keys]
        is_all = len(behind) == len(rows)
        if is_all and not (self.writers.is_busy or self.broker.in_transit):
            return True
        # So many fill what a leader reads ahead, and then all others wait, too.
        return len(behind) >= (READ_AHEAD - 1) * self.plan.mark_batch

    def _group_latency(self) -> float | None:
        luck = self.dice.random()
        if luck < self.weather.group_lost:
            self.count("group message lost")
            return None
        if luck < self.weather.group_lost + self.weather.group_slow:
            self.count("group message slow")
            return self.dice.uniform(0.0, 2 * timing.SESSION_TIMEOUT)
        return self.dice.uniform(0.0005, 0.003)
