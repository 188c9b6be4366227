"""
Builds the parts of one run of a harvester, for either delivery mode.

`harvester.py` owns the lifecycle and gives the providers; `machinery.py` gives
each part its thread. MP/R (`relay/`) and the ledger relay (`ledger/`) are built
of the same kinds of parts.
"""

from __future__ import annotations

from typing import NamedTuple

from . import clusters
from .election.elector import Elector
from .election.ports import Membership
from .election.settings import ElectionSettings
from .events import boottime
from .exceptions import DatabaseError
from .ledger.dispatch import LedgerDispatcher
from .ledger.finder import Finder
from .ledger.settings import LedgerSettings
from .ledger.takeover import TakeoverDispatcher
from .lines import Line
from .machinery import Machinery
from .options import OutboxSettings
from .parts import Parts
from .providers import HarvestedTable, Providers
from .relay.dispatch import Dispatcher
from .relay.mark import Marker
from .relay.meter import Counters, Meter, Totals
from .relay.outage import Outage
from .relay.poison import RetryPolicy
from .relay.ports import Leadership
from .relay.release import Releaser
from .relay.settings import DispatchSettings
from .relay.settle import Settler
from .relay.trust import Trust


def assemble(
    o: OutboxSettings, *, providers: Providers, machinery: Machinery, name: str
) -> Parts:
    """Build all parts of one run, which call the machinery back."""
    membership = providers.membership()
    elector = Elector(
        ElectionSettings(
            name=name,
            heartbeat_timeout=o.HEARTBEAT_TIMEOUT,
            heartbeat_interval=o.HEARTBEAT_INTERVAL,
        ),
        membership,
        clock=boottime,
        on_event=machinery.publish,
        barrier=machinery.barrier,
        can_join=_Probe(providers.table("probe"), o),
    )
    settling = (
        providers.unmarked("settle", o.CLUSTER_ID)
        if o.is_exactly_once
        else providers.table("settle")
    )
    settler = Settler(outbox=settling, on_parked=machinery.parked, clock=boottime)
    wiring = _Wiring(o, providers, machinery, elector.leadership, settler)
    relays = _ledgers(wiring, membership) if o.is_exactly_once else [_marking(wiring)]
    counters = Totals([counters for _, counters in relays])
    return Parts(
        election=elector,
        leadership=elector.leadership,
        lines=[line for line, _ in relays],
        settler=settler,
        meter=Meter(counters, name=machinery.name, interval=o.METER_INTERVAL),
        releaser=_releaser(o, providers, machinery),
        settling=settling,
        listener=providers.listener(),
    )


class _Wiring(NamedTuple):
    """What either relay is connected to."""

    options: OutboxSettings
    providers: Providers
    machinery: Machinery
    leadership: Leadership
    settler: Settler


class _Relay(NamedTuple):
    """What differs between the two relays."""

    line: Line
    counters: Counters


def _marking(wiring: _Wiring) -> _Relay:
    """Build MP/R's part."""
    o, providers, machinery, leadership, settler = wiring
    post = machinery.post()
    table = providers.table("mark")
    marker = Marker(
        outbox=table, is_trusted=Trust(leadership, boottime), clock=boottime
    )
    dispatcher = Dispatcher(
        DispatchSettings(
            max_in_flight=o.MAX_IN_FLIGHT,
            page_bytes=o.page_bytes,
            mark_batch=o.MARK_BATCH,
            marks_in_memory=o.MARKS == "memory",
            here=o.CLUSTER_ID,
            quiet=o.MAXIMUM_DELAY,
            busy_interval=o.MIN_POLL_INTERVAL,
            idle_interval=o.POLL_INTERVAL,
            database_deadline=o.DATABASE_DEADLINE,
            retry=_retry_policy(o),
        ),
        leadership=leadership,
        make_producer=providers.producer,
        claim=post.claim,
        submit=post.submit,
        outages=(marker.outage, settler.outage),
        clock=boottime,
    )
    line = Line(post, marker=marker, dispatcher=dispatcher, marking=table)
    return _Relay(line, dispatcher.relay)


def _ledgers(wiring: _Wiring, membership: Membership) -> list[_Relay]:
    """Build the exactly-once relay's part, this cluster's own line first."""
    o = wiring.options
    origins = [(o.CLUSTER_ID + n) % o.CLUSTERS_COUNT for n in range(o.CLUSTERS_COUNT)]
    return [_ledger(wiring, membership, origin) for origin in origins]


def _ledger(wiring: _Wiring, membership: Membership, origin: int) -> _Relay:
    """Build the line for the records of one cluster."""
    o, providers, machinery, leadership, settler = wiring
    is_own = origin == o.CLUSTER_ID
    post = machinery.post()
    table = providers.unmarked("find" if is_own else f"find {origin}", origin)
    finder = Finder(table=table, clock=boottime)
    dispatcher = (LedgerDispatcher if is_own else TakeoverDispatcher)(
        LedgerSettings(
            batch=o.TRANSACTION_BATCH,
            delivery_timeout=o.DELIVERY_TIMEOUT,
            page_bytes=o.page_bytes,
            here=o.CLUSTER_ID,
            clusters=o.CLUSTERS_COUNT,
            quiet=o.MAXIMUM_DELAY,
            busy_interval=o.MIN_POLL_INTERVAL,
            idle_interval=o.POLL_INTERVAL,
            database_deadline=o.DATABASE_DEADLINE,
            retry=_retry_policy(o),
        ),
        leadership=leadership,
        transactions=providers.transactions(membership, origin),
        claim=post.claim,
        submit=post.submit,
        # A search for what others have left may be slow, and says nothing.
        outages=(finder.outage, settler.outage) if is_own else (settler.outage,),
        clock=boottime,
    )
    name = "" if is_own else f"-{origin}"
    line = Line(post, marker=finder, dispatcher=dispatcher, marking=table, name=name)
    return _Relay(line, dispatcher.relay)


def _releaser(
    o: OutboxSettings, providers: Providers, machinery: Machinery
) -> Releaser:
    return Releaser(
        providers.staging(),
        interval=o.POLL_INTERVAL,
        on_expired=machinery.expired,
        clock=boottime,
    )


def _retry_policy(o: OutboxSettings) -> RetryPolicy:
    return RetryPolicy(
        backoff=o.RETRY_BACKOFF,
        backoff_max=o.RETRY_BACKOFF_MAX,
        parks_poison=o.POISON_POLICY == "park",
        park_after=o.PARK_AFTER,
    )


class _Probe:
    """Whether this cluster's database answers; asked before each join (elect)."""

    def __init__(self, table: HarvestedTable, options: OutboxSettings) -> None:
        self._table = table
        self._options = options
        self._outage = Outage()

    def __call__(self) -> bool:
        try:
            self._table.ping()
            if self._options.CLUSTERS_COUNT > 1:
                # A harvester in an application has had no other look at it, and
                # stays out of the group until somebody has made it right.
                clusters.check(self._table.identity(), self._options)
        except DatabaseError as error:
            self._outage.lost(error, boottime())
            return False
        finally:
            self._table.close()
        self._outage.reached(boottime())
        return True
