"""
The promises of docs/reference, checked from outside and with all knowledge.

Some are checked at the moment when they could break, the others at the end.
Nothing here looks into the relay: the witnesses are the log, the table, the
terms and the events.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain, pairwise
from typing import TYPE_CHECKING

from django_outbox.election.neli import State
from django_outbox.events import (
    Event,
    LeaderAcquired,
    LeaderFenced,
    LeaderRefreshed,
    LeaderRevoked,
)
from django_outbox.message.record import Record

from . import timing

if TYPE_CHECKING:
    from .broker import Request
    from .node import Node
    from .plan import Fault
    from .process import Process
    from .world import World


class Broken(AssertionError):
    """A promise did not hold."""


class Promises:
    """The judge of one history."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._names: dict[str, str] = {}
        self._orderly: set[str] = set()
        """Leader ids that ended with everything settled, and with all their marks."""
        self._ruler: Process | None = None
        self._rules_since = 0.0
        self._reigns = 0
        """Changes from one leading process to another."""
        self._drained: Process | None = None
        self._handed_over: Process | None = None
        """Who has drained, and perhaps not let go yet: it may lead other shards."""
        self._vacant_by = ""
        self._vacant_since = 0.0
        self._vacant_until: float | None = None
        self._calm_from = 0.0
        self._is_lone_fault = True
        self._logged_at: dict[int, float] = {}
        """When each row first came into the log."""
        weather = world.plan.weather
        self._is_prompt = weather == type(weather)()

    # At the moment.

    def on_step(self, process: Process) -> None:
        """P-LEAD: two terms are never trusted at once; frozen ones count."""
        if self._handed_over is process:
            self._handed_over = None
            self._expect_leader(process, "handover", timing.GRACEFUL_TTR)
        processes = (node.process for node in self._world.nodes)
        now = self._world.time()
        trusted = [
            p.name
            for p in processes
            if p is not None and p.term is not None and now >= p.doubtful_until
        ]
        if len(trusted) > 1:
            self._break("P-LEAD", f"{' and '.join(trusted)} are trusted at once")
        self.check_isolation()
        if self._vacant_until is not None and self._world.time() > self._vacant_until:
            since = self._world.time() - self._vacant_since
            self._break("P-TTR", f"nobody leads {since:.3f} s after the last leader")

    def check_isolation(self) -> None:
        """P-ISOLATION: where only single rows are in trouble, they delay no others."""
        world = self._world
        if world.plan.profile != "rows":
            return
        due = world.time() - timing.ISOLATION
        late = [
            id
            for id in world.table.rows
            if self._logged_at.get(id, due) < due and not world.row_trouble.has_met(id)
        ]
        if late:
            self._break("P-ISOLATION", f"rows {late} wait behind others")
        for figure in ("revoked", "duplicates"):
            if world.outcome.figures[figure]:
                self._break("P-ISOLATION", f"{figure} with trouble of single rows only")

    def on_act(self, process: Process, leader_id: str, act: str) -> None:
        """P-LEAD: who marks or produces is trusted at that moment."""
        term = process.term
        if term is None or term.leader_id != leader_id:
            self._break("P-LEAD", f"{process.name} {act} without a proven term")
        self._check_writable(process, act)

    def _check_writable(self, process: Process, act: str) -> None:
        """P-WRITABLE: who joins while the database refuses writes does not act."""
        world = self._world
        is_read_only = world.time() < world.away_until["writes"]
        # The answer to its question may be as old as a statement gets.
        asked_at = process.joined_at - timing.STATEMENT_TIMEOUT
        if is_read_only and world.read_only_since < asked_at:
            self._break("P-WRITABLE", f"{process.name} {act}, and nothing can leave")

    def on_pipelined(self, process: Process, records: Sequence[Record]) -> None:
        """P-APART: what has failed before goes in a request of its own."""
        if failed := [record.id for record in records if record.attempts]:
            what = f"{process.name} sends {failed} again in the pipeline"
            self._break("P-APART", what)

    def check_paused(self, process: Process, records: Iterable[Record]) -> None:
        """P-PAUSED: what the leader knows to be paused it does not send."""
        pauses = process.engine.blocked.pauses
        if held := [record.id for record in records if pauses.holds(record)]:
            self._break("P-PAUSED", f"{process.name} sends {held}, which are paused")

    def on_produce(self, process: Process, record: Record) -> None:
        """P-BARRIER: its row is the first of its key in the table."""
        first = self._world.table.first_of(record.ordering_key)
        if not self._may_go(record, first):
            self._break(
                "P-BARRIER",
                f"{process.name} produces {record.id} of {record.ordering_key} "
                f"while the first row there is {first}",
            )

    def _may_go(self, record: Record, first: int | None) -> bool:
        return first == record.id

    def on_delivered(self, process: Process, record: Record) -> None:
        """Note what the relay of a process knows to be in the log."""
        process.delivered[record.id] = self.reign_of(process)

    def on_repeat(self, process: Process, record: Record) -> None:
        """P-DUP: what it knows to be there it does not send again while it leads."""
        reign = process.delivered.get(record.id)
        if reign is not None and reign == self.reign_of(process):
            what = f"{process.name} sends {record.id} again, and knows it"
            self._break("P-DUP", what)

    def reign_of(self, process: Process) -> object:
        """Name what a process remembers: the marks of one leader id."""
        return term.leader_id if (term := process.term) else None

    def on_landing(self, request: Request) -> None:
        """P-LATE: a client is closed when its process sees that another one leads."""
        process = request.producer.process
        if process is self._ruler or process.is_dead or request.is_stale:
            return
        closed = self._world.time() - timing.LINGER
        since = self._rules_since
        if any(begin > since and end < closed for begin, end in process.dispatch.runs):
            what = f"{process.name} still brings {request.record.id} to the log"
            self._break("P-LATE", what)

    def on_append(self, request: Request) -> None:
        """P-PHANTOM and P-REWIND."""
        record = request.record
        self._logged_at.setdefault(record.id, self._world.time())
        if record.id not in self._world.table.committed:
            self._break("P-PHANTOM", f"row {record.id} was never committed")
        log = self._world.broker.log.get(record.ordering_key, ())
        newest = max((earlier.record.id for earlier in log), default=record.id)
        if record.id < newest:
            if not request.is_stale:
                self._break(
                    "P-REWIND",
                    f"{record.id} of {record.ordering_key} comes after {newest}",
                )
            self._figure("stale duplicates")

    def on_drain(self, process: Process, *, is_drained: bool) -> None:
        """Note how the barrier ended; LeaderRevoked follows."""
        self._drained = process if is_drained else None
        self._figure("drains" if is_drained else "drains that overran")

    def on_event(self, process: Process, event: Event) -> None:
        """Follow who leads, and P-TTR."""
        world = self._world
        world.trace(process.name, f"{event.kind} {self.name(event.leader_id)}")
        if isinstance(event, LeaderAcquired):
            self._figure("acquired")
            if process is not self._ruler:
                self._ruler = process
                self._rules_since = self._world.time()
                self._reigns += 1
            if self._vacant_until is not None:
                self._vacant_until = None
                self._time(f"vacancy after {self._vacant_by}", self._vacant_since)
        elif isinstance(event, LeaderRefreshed):
            self._figure("refreshed")
        elif isinstance(event, LeaderFenced):
            self._figure("fenced")
        elif isinstance(event, LeaderRevoked):
            self._figure("revoked")
            if self._drained is process and event.leader_id is not None:
                self._handed_over = process
                if event.leader_id not in world.table.robbed:
                    self._orderly.add(event.leader_id)

    def on_fault(self, fault: Fault, node: Node) -> None:
        """P-TTR: after a crash the next leader comes in time."""
        world = self._world
        now = world.time()
        self._vacant_until = None
        # A rolling restart takes away who would stand ready.
        is_lone = now > self._calm_from and fault.kind != "rolling_restart"
        self._is_lone_fault = is_lone
        self._calm_from = max(self._calm_from, now + fault.duration + 1.0)
        process = node.process
        if fault.kind == "crash" and process is not None and process.term is not None:
            self._expect_leader(process, "crash", timing.CRASH_TTR)

    def on_stuck(self) -> None:
        """P-LIVE: no row has left the table for too long, with nothing broken."""
        rows = list(self._world.table.rows)
        self._break("P-LIVE", f"for {self._world.patience:.1f} s nothing moved: {rows}")

    def _expect_leader(self, former: Process, cause: str, within: float) -> None:
        """Expect a leader in time, if another process stands ready in peace."""
        world = self._world
        now = world.time()
        stands_ready = any(
            (other := node.process) is not None
            and other is not former
            and not other.is_stopping
            and other.started_at < now - 0.3
            and other.state is State.FOLLOWER
            for node in world.nodes
        )
        if stands_ready and self._is_prompt and self._is_lone_fault:
            self._vacant_by = cause
            self._vacant_since, self._vacant_until = now, now + within

    # At the end.

    def at_end(self) -> None:
        """P-LOSS, P-ORDER, P-DUP, and what was noted meanwhile."""
        table, log = self._world.table, self._world.broker.log
        self._world.outcome.figures["rows"] = len(table.committed)
        for leader_id, id in table.trespasses:
            who = self.name(leader_id)
            self._break("P-FENCE", f"{who} changed row {id}, which is another's")
        logged = {r.record.id for requests in log.values() for r in requests}
        if lost := [i for i in table.committed if i not in logged | set(table.parked)]:
            self._break("P-LOSS", f"rows {lost} are neither in the log nor parked")
        for id, row in table.parked.items():
            if not row.poison or id in logged:
                self._break("P-PARK", f"row {id} was parked without need")
        self._check_order()
        self.check_duplicates()
        self.check_isolation()

    def _check_order(self) -> None:
        for ordering_key, requests in self._world.broker.log.items():
            firsts = list(dict.fromkeys(r.record.id for r in requests))
            if firsts != sorted(firsts):
                self._break("P-ORDER", f"first deliveries of {ordering_key}: {firsts}")

    def _sent(self) -> Iterable[Request]:
        """Return all that is in the log."""
        return chain.from_iterable(self._world.broker.log.values())

    def check_duplicates(self) -> None:
        """
        P-DUP: none in good order, at most W for each leader id that ended badly.

        What a client was told had failed, or never heard of, may be sent once
        more; that is one duplicate for one fault.
        """
        tries: dict[int, list[Request]] = {}
        for request in self._sent():
            tries.setdefault(request.record.id, []).append(request)
        unsettled: Counter[str] = Counter()
        for requests in tries.values():
            requests.sort(key=lambda r: r.serial)
            for former, again in pairwise(requests):
                self._figure("duplicates")
                if former.is_failed:
                    self._figure("duplicates of reported failures")
                    continue
                if former.leader_id in self._orderly:
                    self._break(
                        "P-DUP",
                        f"{again.record.id} again after an orderly handover "
                        f"by {self.name(former.leader_id)}",
                    )
                unsettled[former.leader_id] += 1
        for leader_id, count in unsettled.items():
            if count > self._world.plan.max_in_flight:
                self._break("P-DUP", f"{self.name(leader_id)} left {count} records")
        if self._world.plan.profile == "graceful" and (
            duplicates := self._world.outcome.figures["duplicates"]
        ):
            self._break("P-DUP", f"{duplicates} duplicates without a hard fault")

    def name(self, leader_id: str | None) -> str:
        """Call the n-th leader id Ln: the ids differ from run to run."""
        return self._names.setdefault(leader_id or "", f"L{len(self._names) + 1}")

    def _figure(self, name: str) -> None:
        self._world.outcome.figures[name] += 1

    def _time(self, kind: str, since: float) -> None:
        """Time a wait that ends now."""
        longest = self._world.outcome.longest
        self._figure(kind)
        longest[kind] = max(longest.get(kind, 0.0), self._world.time() - since)

    def _break(self, promise: str, what: str) -> None:
        self._world.trace("BROKEN", f"{promise}: {what}")
        raise Broken(f"{promise}: {what}")
