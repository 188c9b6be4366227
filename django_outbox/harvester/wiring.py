"""
Builds the components of one run of a harvester, for either delivery mode.

The two relays, MP/R and the ledger relay, have the same kinds of parts: workers,
each with a dispatcher, a reader or marker, and a settler.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..clock import boottime
from ..clusters import cluster_ids
from ..election.elector import Elector
from ..election.ports import Membership
from ..election.settings import ElectionSettings
from ..exceptions import DatabaseBusy, DatabaseReadOnly, DatabaseUnavailable
from ..message.retry import RetryPolicy
from ..relay.availability import Availability
from ..relay.lease import Lease, Trust
from ..relay.ledger.ledger_dispatcher import LedgerDispatcher
from ..relay.ledger.page_reader import PageReader
from ..relay.ledger.settings import LedgerSettings
from ..relay.ledger.takeover_dispatcher import TakeoverDispatcher
from ..relay.meter import Meter, Totals
from ..relay.mpr.dispatcher import Dispatcher
from ..relay.mpr.marker import Marker
from ..relay.ports import Leadership
from ..relay.releaser import Releaser
from ..relay.settings import DispatchSettings
from ..relay.settler import Settler
from ..settings.options import OutboxSettings
from .adapters import Adapters, HarvestedTable
from .components import Components, Learn
from .threads import HarvesterThreads
from .workers import RelayWorker


def assemble(
    o: OutboxSettings, *, adapters: Adapters, threads: HarvesterThreads, name: str
) -> Components:
    """Build the components of one run; they publish through `threads`."""
    membership = adapters.membership()
    elector = Elector(
        ElectionSettings(
            name=name,
            heartbeat_timeout=o.HEARTBEAT_TIMEOUT,
            heartbeat_interval=o.HEARTBEAT_INTERVAL,
        ),
        membership,
        clock=boottime,
        on_event=threads.publish,
        barrier=threads.barrier,
        can_join=_Probe(adapters.table("probe"), o, adapters.learn),
    )
    wiring = _Wiring(o, adapters, threads, elector.leadership)
    workers = (
        _ledger_workers(wiring, membership)
        if o.is_exactly_once
        else [_mpr_worker(wiring)]
    )
    counters = Totals([worker.counters for worker in workers])
    return Components(
        election=elector,
        leadership=elector.leadership,
        workers=workers,
        meter=Meter(
            counters,
            name=threads.name,
            interval=o.METER_INTERVAL,
            database=adapters.database,
        ),
        metered=adapters.table("meter"),
        releaser=_releaser(o, adapters, threads),
        listener=adapters.listener(),
        learn=adapters.learn,
    )


class _Wiring(NamedTuple):
    """What the workers of either relay are connected to."""

    options: OutboxSettings
    adapters: Adapters
    threads: HarvesterThreads
    leadership: Leadership


def _mpr_worker(wiring: _Wiring) -> RelayWorker:
    """Build MP/R's worker."""
    o, adapters, threads, leadership = wiring
    marking, settling = adapters.marks(), adapters.table("settle")
    marker = Marker(
        outbox=marking, is_trusted=Trust(leadership, boottime), clock=boottime
    )
    settler = Settler(outbox=settling, on_parked=threads.parked, clock=boottime)
    settings = DispatchSettings(
        max_in_flight=o.MAX_IN_FLIGHT,
        mark_batch=o.MARK_BATCH,
        marks_in_memory=o.MARKS == "memory",
        max_in_flight_per_key=0 if o.is_pipelined else 1,
        delivery_timeout=o.DELIVERY_TIMEOUT,
        **_of_either(o),
    )
    return RelayWorker(
        lambda queue: Dispatcher(
            settings,
            lease=_lease(wiring, marker.outage, settler.outage),
            make_producer=adapters.producer,
            queue=queue,
            clock=boottime,
        ),
        reader=marker,
        settler=settler,
        tables=(marking, settling),
    )


def _ledger_workers(wiring: _Wiring, membership: Membership) -> list[RelayWorker]:
    """Build the exactly-once relay's workers, this cluster's own first."""
    o = wiring.options
    clusters = [(o.CLUSTER_ID + n) % o.CLUSTERS_COUNT for n in range(o.CLUSTERS_COUNT)]
    return [_ledger_worker(wiring, membership, cluster) for cluster in clusters]


def _ledger_worker(
    wiring: _Wiring, membership: Membership, cluster: int
) -> RelayWorker:
    """Build the worker for the records of one cluster."""
    o, adapters, threads, _ = wiring
    is_own = cluster == o.CLUSTER_ID
    name = "" if is_own else f"-{cluster}"
    finding = adapters.unmarked(f"find{name}", cluster)
    settling = adapters.unmarked(f"settle{name}", o.CLUSTER_ID)
    reader = PageReader(table=finding, clock=boottime)
    settler = Settler(outbox=settling, on_parked=threads.parked, clock=boottime)
    # A slow search for other clusters' records is not an outage.
    outages = (reader.outage, settler.outage) if is_own else (settler.outage,)
    make_dispatcher = LedgerDispatcher if is_own else TakeoverDispatcher
    settings = LedgerSettings(
        batch=o.TRANSACTION_BATCH,
        delivery_timeout=o.DELIVERY_TIMEOUT,
        clusters=o.CLUSTERS_COUNT,
        **_of_either(o),
    )
    return RelayWorker(
        lambda queue: make_dispatcher(
            settings,
            lease=_lease(wiring, *outages),
            transactions=adapters.transactions(membership, cluster),
            queue=queue,
            clock=boottime,
        ),
        reader=reader,
        settler=settler,
        tables=(finding, settling),
        is_apart=True,
        name=name,
    )


def _lease(wiring: _Wiring, *outages: Availability) -> Lease:
    return Lease(
        wiring.leadership,
        clock=boottime,
        outages=outages,
        deadline=wiring.options.DATABASE_DEADLINE,
    )


def _releaser(
    o: OutboxSettings, adapters: Adapters, threads: HarvesterThreads
) -> Releaser:
    return Releaser(
        adapters.staging(),
        interval=o.POLL_INTERVAL,
        on_expired=threads.expired,
        clock=boottime,
    )


def _of_either(o: OutboxSettings) -> dict[str, Any]:
    """Return the fields of `RelaySettings`, which both relays share."""
    return {
        "page_bytes": o.page_bytes,
        "this_cluster": o.CLUSTER_ID,
        "quiet": o.MAXIMUM_DELAY,
        "busy_interval": o.MIN_POLL_INTERVAL,
        "idle_interval": o.POLL_INTERVAL,
        "retry": RetryPolicy(
            backoff=o.RETRY_BACKOFF,
            backoff_max=o.RETRY_BACKOFF_MAX,
            attempts=o.PARK_AFTER if o.POISON_POLICY == "park" else 0,
        ),
    }


class _Probe:
    """
    Whether this cluster's database answers; called before each join (elect).

    Raises:
        DatabaseReadOnly: it does not accept writes, so nothing sent could be purged.
        WrongOutbox: it holds another outbox than before.
        OutboxError: it answers but cannot be used: the table is missing, for
            instance.
    """

    def __init__(
        self, table: HarvestedTable, options: OutboxSettings, learn: Learn | None
    ) -> None:
        self._table = table
        self._options = options
        self._learn = learn
        self._outage = Availability()

    def __call__(self) -> bool:
        try:
            self._table.ping()
            if self._learn is not None:
                self._learn(self._table.identity())
            if self._options.CLUSTERS_COUNT > 1:
                # A harvester in an application has not checked this yet. It stays
                # out of the group until somebody has corrected the database.
                cluster_ids.check(self._table.numbering(), self._options)
        except DatabaseReadOnly:
            raise
        except DatabaseUnavailable as error:
            self._outage.lost(error, boottime())
            return False
        except DatabaseBusy:
            # It answers. But clusters with colliding ids could lose rows.
            if self._options.CLUSTERS_COUNT > 1:
                raise
        finally:
            self._table.close()
        self._outage.reached(boottime())
        return True
