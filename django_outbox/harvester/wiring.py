"""
Builds the components of one run of a harvester, for either delivery mode.

The two relays, MP/R and the ledger relay, have the same kinds of parts: workers,
each with a dispatcher, a reader or marker, and a settler. Each shard has its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from ..clock import boottime
from ..clusters import cluster_ids
from ..election.elector import Elector
from ..election.ports import Membership
from ..election.settings import ElectionSettings
from ..exceptions import DatabaseBusy, DatabaseReadOnly, DatabaseUnavailable
from ..message.retry import RetryPolicy
from ..observability.deliveries import Deliveries
from ..relay.availability import Availability, Said
from ..relay.dispatcher import Dispatcher, Sender
from ..relay.engine import Engine
from ..relay.lease import Lease, Trust
from ..relay.ledger.ledger_sender import LedgerSender
from ..relay.ledger.takeover_sender import TakeoverSender
from ..relay.meter import Meter, Totals
from ..relay.page_reader import PageReader
from ..relay.pipeline import Pipeline
from ..relay.polling import PollSchedule
from ..relay.ports import Leadership
from ..relay.releaser import Releaser
from ..relay.settings import RelaySettings
from ..relay.settler import Settler
from ..relay.work_queue import WorkQueue
from ..settings.options import OutboxSettings
from .adapters import Adapters, HarvestedTable, ReadHarvest
from .components import Components, Learn
from .threads import HarvesterThreads
from .workers import Duty, RelayWorker


def assemble(
    o: OutboxSettings, *, adapters: Adapters, threads: HarvesterThreads, name: str
) -> Components:
    """Build the components of one run; they publish through `threads`."""
    membership, said = adapters.membership(), Said()
    elector = Elector(
        ElectionSettings(
            name=name,
            shards=o.SHARDS,
            heartbeat_timeout=o.HEARTBEAT_TIMEOUT,
            heartbeat_interval=o.HEARTBEAT_INTERVAL,
        ),
        membership,
        clock=boottime,
        on_event=threads.publish,
        barrier=threads.barrier,
        can_join=_Probe(adapters.table("probe"), o, adapters.learn, said),
    )
    workers = [
        _workers(_Wiring(o, adapters, threads, leadership, said), membership)
        for leadership in elector.leaderships
    ]
    return Components(
        election=elector,
        leaderships=elector.leaderships,
        workers=[*chain.from_iterable(workers)],
        meters=[
            Meter(
                Totals([worker.counters for worker in of_shard]),
                name=threads.name,
                interval=o.METER_INTERVAL,
                database=adapters.database,
            )
            for of_shard in workers
        ],
        metered=adapters.table("meter"),
        releaser=_releaser(o, adapters, threads, said),
        listener=adapters.listener(),
        learn=adapters.learn,
    )


class _Wiring(NamedTuple):
    """What the workers of one shard, of either relay, are connected to."""

    options: OutboxSettings
    adapters: Adapters
    threads: HarvesterThreads
    leadership: Leadership
    said: Said

    @property
    def name(self) -> str:
        """What follows the names of the shard's threads and connections."""
        return f"-{self.leadership.shard}" if self.options.SHARDS > 1 else ""


def _workers(wiring: _Wiring, membership: Membership) -> Sequence[RelayWorker]:
    """Build the workers of one shard."""
    if wiring.options.is_exactly_once:
        return _ledger_workers(wiring, membership)
    return [_pipeline_worker(wiring)]


def _pipeline_worker(wiring: _Wiring) -> RelayWorker:
    """Build the worker of at-least-once delivery, with marks of either kind."""
    o, adapters, leadership = wiring.options, wiring.adapters, wiring.leadership
    settings = pipeline_settings(o)
    reading = adapters.reading(f"mark{wiring.name}", o.CLUSTER_ID, leadership.shard)
    settling = adapters.table(f"settle{wiring.name}")
    parts = _Parts(wiring, settings, reading, settling)

    def make_sender(_: WorkQueue) -> Sender:
        return Pipeline(
            settings,
            engine=parts.engine,
            make_producer=adapters.producer,
            is_trusted=parts.is_trusted,
            clock=boottime,
        )

    return parts.worker(make_sender, Duty(leadership, name=wiring.name))


def _ledger_workers(wiring: _Wiring, membership: Membership) -> list[RelayWorker]:
    """Build the exactly-once relay's workers, this cluster's own first."""
    o = wiring.options
    clusters = [(o.CLUSTER_ID + n) % o.CLUSTERS_COUNT for n in range(o.CLUSTERS_COUNT)]
    return [_ledger_worker(wiring, membership, cluster) for cluster in clusters]


def _ledger_worker(
    wiring: _Wiring, membership: Membership, cluster: int
) -> RelayWorker:
    """Build the worker for the records of one cluster."""
    o, adapters, leadership = wiring.options, wiring.adapters, wiring.leadership
    is_own = cluster == o.CLUSTER_ID
    name = wiring.name if is_own else f"-{cluster}"
    settings = _settings(
        o, page_rows=o.TRANSACTION_BATCH, blocks=True, needs_proof=False
    )
    reading = adapters.reading(f"find{name}", cluster, leadership.shard)
    settling = adapters.table(f"settle{name}")
    parts = _Parts(wiring, settings, reading, settling)
    if not is_own:
        # A slow search for other clusters' records is not an outage.
        parts.outages = (parts.settler.outage,)

    def make_sender(queue: WorkQueue) -> Sender:
        transactions = adapters.transactions(membership, cluster, leadership.shard)
        sender = LedgerSender(
            settings,
            engine=parts.engine,
            transactions=transactions,
            queue=queue,
            is_trusted=parts.is_trusted,
            clock=boottime,
            is_own=is_own,
        )
        if is_own:
            return sender
        return TakeoverSender(
            settings,
            engine=parts.engine,
            sender=sender,
            transactions=transactions,
            queue=queue,
            schedule=parts.schedule,
            clock=boottime,
        )

    return parts.worker(make_sender, Duty(leadership, is_own=is_own, name=name))


class _Parts:
    """What the workers of every kind of delivery have."""

    def __init__(
        self,
        wiring: _Wiring,
        settings: RelaySettings,
        reading: ReadHarvest,
        settling: HarvestedTable,
    ) -> None:
        self.engine = Engine(settings)
        self.is_trusted = Trust(wiring.leadership, boottime)
        self.schedule = PollSchedule(
            busy_interval=settings.busy_interval, idle_interval=settings.idle_interval
        )
        self.reader = PageReader(
            reading, is_trusted=self.is_trusted, clock=boottime, said=wiring.said
        )
        self.settler = Settler(
            outbox=settling,
            on_parked=partial(wiring.threads.parked, wiring.leadership.shard),
            clock=boottime,
            said=wiring.said,
        )
        self.outages: tuple[Availability, ...] = (
            self.reader.outage,
            self.settler.outage,
        )
        self._reading, self._settling = reading, settling
        self._settings = settings
        self._wiring = wiring

    def worker(
        self,
        make_sender: Callable[[WorkQueue], Sender],
        duty: Duty,
    ) -> RelayWorker:
        """Join them with a sender."""

        def make_dispatcher(queue: WorkQueue) -> Dispatcher:
            return Dispatcher(
                self._settings,
                engine=self.engine,
                sender=make_sender(queue),
                lease=Lease(
                    self._wiring.leadership,
                    outages=self.outages,
                    deadline=self._wiring.options.DATABASE_DEADLINE,
                ),
                queue=queue,
                schedule=self.schedule,
                clock=boottime,
            )

        return RelayWorker(
            make_dispatcher,
            duty=duty,
            reader=self.reader,
            reading=self._reading,
            settler=self.settler,
            settling=self._settling,
            deliveries=Deliveries(is_traced=self._wiring.options.TRACING),
        )


def _releaser(
    o: OutboxSettings, adapters: Adapters, threads: HarvesterThreads, said: Said
) -> Releaser:
    return Releaser(
        adapters.staging(),
        interval=o.POLL_INTERVAL,
        on_expired=threads.expired,
        clock=boottime,
        said=said,
    )


def pipeline_settings(o: OutboxSettings) -> RelaySettings:
    """Return the settings of at-least-once delivery."""
    return _settings(
        o,
        page_rows=o.MARK_BATCH,
        max_in_flight=o.MAX_IN_FLIGHT,
        max_in_flight_per_key=0 if o.is_pipelined else 1,
        marks_in_table=o.MARKS == "table",
    )


def _settings(o: OutboxSettings, **own: Any) -> RelaySettings:
    """Return the settings of one kind of delivery."""
    return RelaySettings(
        **own,
        page_bytes=o.page_bytes,
        delivery_timeout=o.DELIVERY_TIMEOUT,
        this_cluster=o.CLUSTER_ID,
        clusters=o.CLUSTERS_COUNT,
        shards=o.SHARDS,
        quiet=o.MAXIMUM_DELAY,
        busy_interval=o.MIN_POLL_INTERVAL,
        idle_interval=o.POLL_INTERVAL,
        retry=RetryPolicy(
            backoff=o.RETRY_BACKOFF,
            backoff_max=o.RETRY_BACKOFF_MAX,
            attempts=o.PARK_AFTER,
        ),
        parks=o.parks,
    )


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
        self,
        table: HarvestedTable,
        options: OutboxSettings,
        learn: Learn | None,
        said: Said | None = None,
    ) -> None:
        self._table = table
        self._options = options
        self._learn = learn
        self._outage = Availability(said=said)

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
