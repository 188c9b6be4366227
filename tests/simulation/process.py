"""
One life of a harvester process: the real election and relay on fake ports.

It is composed as `harvester/harvester.py` composes it, and its threads do what those of
`harvester/threads.py` do. A process may be stopped in good order, frozen and thawed
(SIGSTOP, SIGCONT), killed, and held up in one of its threads.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING, Final

from django_outbox.election.elector import Elector
from django_outbox.election.leadership import Leadership
from django_outbox.election.neli import State
from django_outbox.election.term import LeaderTerm
from django_outbox.events import Event
from django_outbox.exceptions import DatabaseError
from django_outbox.relay.availability import Availability
from django_outbox.relay.dispatcher import REPORT_WAIT, Dispatcher, Sender
from django_outbox.relay.engine import Engine
from django_outbox.relay.lease import Lease, Trust
from django_outbox.relay.page_reader import PageReader
from django_outbox.relay.page_request import PageRequest
from django_outbox.relay.pipeline import Pipeline
from django_outbox.relay.polling import PollSchedule
from django_outbox.relay.ports import Producer, Term
from django_outbox.relay.settings import RelaySettings
from django_outbox.relay.settlement import Settlement
from django_outbox.relay.settler import Attempt, Settler
from django_outbox.relay.work_queue import WorkQueue

from . import timing
from .connection import Connection
from .loop import Killed, Loop
from .membership import Membership
from .producer import SimulatedProducer

if TYPE_CHECKING:
    from .node import Node

LONGEST_WAIT: Final = {State.FOLLOWER: 0.05, State.CANDIDATE: 0.008, State.LEADER: 0.02}
"""Seconds between two rounds of the thread "elect"."""


class Preempted:
    """The leadership, as a thread sees it that may wait after each look."""

    def __init__(self, leadership: Leadership, process: Process) -> None:
        self._leadership = leadership
        self._process = process
        self.resign = leadership.resign
        self.refresh = leadership.refresh

    @property
    def term(self) -> LeaderTerm | None:
        term = self._leadership.term
        self._process.preempt()
        return term


class Process:
    """One life; `Node` starts the next."""

    shard = 0
    """Which leader partition makes it the leader."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.name = node.name
        self.world = node.world
        self.started_at = self.world.time()
        self.is_dead = False
        self.thaw_at = 0.0
        self.behind = 0.0
        """Seconds for which its clock has stood still."""
        self.doubtful_until = 0.0
        """Its lease, by that clock, may have lasted too long until then."""
        self.delivered: dict[int, object] = {}
        """Ids of records that it knows to be in the log, and who led then."""
        self.joined_at = 0.0
        """When it last found that it could lead."""
        self.producer: SimulatedProducer | None = None
        self.parts: list[Process] = [self]
        """Itself; of a process that may lead several shards, the part for each."""
        self._stop_by = inf
        self._is_abandoned = False
        self._requests: deque[PageRequest] = deque()
        self._inbox: deque[Settlement] = deque()
        self._assemble_election()
        self._assemble()
        self.read = Loop(self, self._read)
        self.dispatch = Loop(self, self._dispatch)
        self.settle = Loop(self, self._settle)
        for loop in (self.settle, self.dispatch, self.elect):
            loop.wake()

    def _assemble_election(self) -> None:
        """Build the part in the election, as `Harvester` does."""
        self.probe = Connection(self)
        self.membership = Membership(self)
        self.elector = Elector(
            timing.election_settings(self.name, shards=len(self.node.machine)),
            self.membership,
            clock=self.preempted_clock,
            on_event=lambda event: self.parts[event.shard]._publish(event),
            barrier=lambda term: self.parts[term.shard]._barrier(term),
            can_join=self._can_join,
            wait=lambda _: None,
        )
        self.elect = Loop(self, self._elect)

    def _assemble(self) -> None:
        """Build the other parts, as `Harvester` does."""
        leadership = self.elector.leaderships[self.shard]
        self.leadership = Preempted(leadership, self)
        self._extend = leadership.extend
        vars(leadership)["extend"] = self._preempted_extend
        self.queue = WorkQueue(read=self._request, settle=self._submit, wake=self._wake)
        # A pause between this look and the act is what a freeze is for.
        self.is_trusted = Trust(leadership, self.clock)
        self._assemble_relay()

    def _assemble_relay(self) -> None:
        settings = self._settings()
        self.engine = Engine(settings)
        self.settler = Settler(
            outbox=self.connect(), on_parked=lambda *_: None, clock=self.clock
        )
        self.reader = PageReader(
            self.connect(), is_trusted=self.is_trusted, clock=self.clock
        )
        self.dispatcher = Dispatcher(
            settings,
            engine=self.engine,
            sender=self._make_sender(settings),
            lease=self._lease(self.reader.outage, self.settler.outage),
            queue=self.queue,
            schedule=PollSchedule(
                busy_interval=settings.busy_interval,
                idle_interval=settings.idle_interval,
            ),
            clock=self.preempted_clock,
        )

    def _make_sender(self, settings: RelaySettings) -> Sender:
        return Pipeline(
            settings,
            engine=self.engine,
            make_producer=self._make_producer,
            is_trusted=self.is_trusted,
            clock=self.preempted_clock,
        )

    def _lease(self, *outages: Availability) -> Lease:
        return Lease(
            self.leadership, outages=outages, deadline=timing.DATABASE_DEADLINE
        )

    def _settings(self) -> RelaySettings:
        return timing.relay_settings(self.world.plan)

    def connect(self) -> Connection:
        """Give a thread its way to the table."""
        return Connection(self)

    # What it is.

    def clock(self) -> float:
        """Its boot-time clock, in seconds."""
        return self.world.time() - self.behind

    def preempted_clock(self) -> float:
        """The same, after which the calling thread may wait for a processor."""
        now = self.clock()
        self.preempt()
        return now

    def _preempted_extend(self, until: float) -> None:
        """Extend the lease, perhaps a moment after it has ended."""
        self.preempt(10.0, timing.LEASE)
        self._extend(until)

    def preempt(self, factor: float = 1.0, longest: float = timing.LEASE / 5) -> None:
        """Let the other threads go on, at a line that has no statement to wait for."""
        world = self.world
        chance = factor * world.weather.preempted
        if chance and world.dice.random() < chance:
            world.count("thread preempted")
            self.sleep(world.dice.uniform(0.0, longest))

    @property
    def is_frozen(self) -> bool:
        return self.world.time() < self.thaw_at

    @property
    def term(self) -> LeaderTerm | None:
        """The term that this process could act under at this very moment."""
        term = self.elector.leaderships[self.shard].term
        if term is None or term.trusted_until <= self.clock():
            return None
        return term

    @property
    def state(self) -> State:
        """Its role in the election."""
        return self.elector.states[self.shard]

    # What befalls it, with all its parts.

    def stop(self) -> None:
        """Begin an orderly end: SIGTERM."""
        for part in self.parts:
            if part._stop_by == inf:
                part._stop_by = self.world.time() + timing.DRAIN_TIMEOUT

    @property
    def is_stopping(self) -> bool:
        return self._stop_by < inf

    def freeze(self, seconds: float) -> None:
        thaw_at = max(self.thaw_at, self.world.time() + seconds)
        self.membership.freeze()
        for part in self.parts:
            part.thaw_at = thaw_at
            if part.producer is not None:
                part.producer.freeze()
        self.world.time.after(seconds, self._thaw)

    def suspend(self, seconds: float) -> None:
        """Freeze with the machine around it, whose clock stands still meanwhile."""
        now = self.world.time()
        behind = self.behind + max(0.0, now + seconds - max(now, self.thaw_at))
        self.freeze(seconds)
        until = self.thaw_at + timing.LEASE
        for part in self.parts:
            part.behind = behind
            part.doubtful_until = max(until, part.doubtful_until)

    def _thaw(self) -> None:
        if not self.is_frozen:
            self.membership.thaw()

    def kill(self) -> None:
        """End at once, as by SIGKILL."""
        self.membership.crash()
        for part in self.parts:
            part.is_dead = True
            if part.producer is not None:
                part.producer.die()

    def sleep(self, seconds: float) -> None:
        """Hold the calling thread up; while frozen it stays where it is."""
        time = self.world.time
        end = time() + seconds
        while (wait := max(end, self.thaw_at) - time()) > 0:
            self.world.threads.sleep(wait)
            if self.is_dead:
                raise Killed

    # The bodies of the threads; each returns when it wants to be called again.

    def _elect(self) -> float:
        is_last = self.is_stopping
        if is_last:
            self.elector.stop()
        else:
            self.elector.step(0)
        for part in self.parts:
            part.world.promises.on_step(part)
        if is_last:
            for part in self.parts:
                part._is_abandoned = True
                part.dispatch.wake()
            return inf
        # What the group says ends the wait; heartbeats are read at this pace.
        longest = min(LONGEST_WAIT[state] for state in self.elector.states)
        return self.world.dice.uniform(0.004, longest)

    def _dispatch(self) -> float:
        if self._is_abandoned:
            self.dispatcher.close()
            self.node.ended()
            self.is_dead = True
            return inf
        wait = self.dispatcher.step()
        # A machine is not always at hand when there is something to do.
        return wait if wait > REPORT_WAIT else self.world.dice.uniform(0.001, 0.015)

    def _settle(self) -> float:
        while self._inbox:
            attempt = Attempt(self._inbox.popleft())
            while (retry_at := self.settler.advance(attempt)) is not None:
                self.sleep(retry_at - self.clock())
                if self._is_abandoned:
                    return inf
            self.queue.put_settled(attempt.settled())
        return inf

    def _read(self) -> float:
        while self._requests:
            request = self._requests.popleft()
            self.queue.put_page(self.reader.carry_out(request))
        return inf

    # What the parts call back, as in `HarvesterThreads`.

    def _wake(self) -> None:
        self.dispatch.wake()

    def _request(self, request: PageRequest) -> None:
        self._requests.append(request)
        self.read.wake()

    def _submit(self, settlement: Settlement) -> None:
        self._inbox.append(settlement)
        self.settle.wake()

    def _barrier(self, term: Term) -> None:
        time = self.world.time
        timeout = min(timing.DRAIN_TIMEOUT, self._stop_by - time())
        if not self.is_stopping:
            # Meanwhile this process proves none of the other shards that it leads.
            others = [part.term for part in self.parts if part is not self]
            lasts = [other.remaining(self.clock()) for other in others if other]
            timeout = min([timeout, *(seconds / 2 for seconds in lasts)])
        deadline = time() + timeout
        self.queue.begin_drain(term)
        while not self.queue.wait_drained(0) and time() < deadline:
            self.elector.outlast()
            self.sleep(0.004)
        self.world.promises.on_drain(self, is_drained=self.queue.wait_drained(0))

    def _publish(self, event: Event) -> None:
        if not self.is_dead:
            self.world.promises.on_event(self, event)
            self.dispatch.wake()

    def _make_producer(self, topic: str) -> Producer:
        self.producer = SimulatedProducer(self)
        return self.producer

    def _can_join(self) -> bool:
        try:
            self.probe.ping()
        except DatabaseError:
            return False
        for part in self.parts:
            part.joined_at = self.world.time()
        return True
