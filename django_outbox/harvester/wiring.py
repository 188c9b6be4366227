"""
Builds the components of one run of a harvester, for either delivery mode.

Every delivery has the same parts: workers, each with a dispatcher, a page reader and
a settler. Only the sender differs. Each shard has its own.
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
from ..relay.availability import Availability, OutageLog
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
    o: OutboxSettings, *, adapters: Adapters, threads: HarvesterThreads, learn: Learn
) -> Components:
    """Build the components of one run; they publish through `threads`."""
    membership, outage_log = adapters.membership(), OutageLog()
    elector = Elector(
        ElectionSettings(
            name=threads.name,
            shards=o.SHARDS,
            heartbeat_timeout=o.HEARTBEAT_TIMEOUT,
            heartbeat_interval=o.HEARTBEAT_INTERVAL,
        ),
        membership,
        clock=boottime,
        on_event=threads.publish,
        barrier=threads.barrier,
        can_join=_Probe(adapters.table("probe"), o, learn, outage_log),
    )
    workers = [
        _workers(_Shard(o, adapters, threads, leadership, outage_log), membership)
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
        releaser=_releaser(o, adapters, threads, outage_log),
        listener=adapters.listener(),
        learn=learn,
    )


class _Shard(NamedTuple):
    """What the workers of one shard are connected to."""

    options: OutboxSettings
    adapters: Adapters
    threads: HarvesterThreads
    leadership: Leadership
    outage_log: OutageLog

    @property
    def suffix(self) -> str:
        """What follows the names of the shard's threads and connections."""
        return f"-{self.leadership.shard}" if self.options.SHARDS > 1 else ""


def _workers(shard: _Shard, membership: Membership) -> Sequence[RelayWorker]:
    """Build the workers of one shard."""
    if shard.options.is_exactly_once:
        return _ledger_workers(shard, membership)
    return [_pipeline_worker(shard)]


def _pipeline_worker(shard: _Shard) -> RelayWorker:
    """Build the worker of at-least-once delivery, with marks of either kind."""
    o, adapters, leadership = shard.options, shard.adapters, shard.leadership
    settings = pipeline_settings(o)
    reading = adapters.reading(f"mark{shard.suffix}", o.CLUSTER_ID, leadership.shard)
    settling = adapters.table(f"settle{shard.suffix}")
    builder = _WorkerBuilder(shard, settings, reading, settling)

    def make_sender(_: WorkQueue) -> Sender:
        return Pipeline(
            settings,
            engine=builder.engine,
            make_producer=adapters.producer,
            is_trusted=builder.is_trusted,
            clock=boottime,
        )

    return builder.worker(make_sender, Duty(leadership, name=shard.suffix))


def _ledger_workers(shard: _Shard, membership: Membership) -> list[RelayWorker]:
    """Build the exactly-once relay's workers, this cluster's own first."""
    o = shard.options
    clusters = [(o.CLUSTER_ID + n) % o.CLUSTERS_COUNT for n in range(o.CLUSTERS_COUNT)]
    return [_ledger_worker(shard, membership, cluster) for cluster in clusters]


def _ledger_worker(shard: _Shard, membership: Membership, cluster: int) -> RelayWorker:
    """Build the worker for the records of one cluster."""
    o, adapters, leadership = shard.options, shard.adapters, shard.leadership
    is_own = cluster == o.CLUSTER_ID
    name = shard.suffix if is_own else f"-{cluster}"
    settings = _settings(
        o,
        page_rows=o.TRANSACTION_BATCH,
        blocks=True,
        needs_proof=False,
        by_scans=not is_own,
    )
    reading = adapters.reading(f"find{name}", cluster, leadership.shard)
    settling = adapters.table(f"settle{name}")
    builder = _WorkerBuilder(shard, settings, reading, settling)
    if not is_own:
        # A slow search for other clusters' records is not an outage.
        builder.outages = (builder.settler.outage,)

    def make_sender(queue: WorkQueue) -> Sender:
        transactions = adapters.transactions(membership, cluster, leadership.shard)
        sender = LedgerSender(
            settings,
            engine=builder.engine,
            transactions=transactions,
            queue=queue,
            is_trusted=builder.is_trusted,
            clock=boottime,
            is_own=is_own,
        )
        if is_own:
            return sender
        return TakeoverSender(
            settings,
            engine=builder.engine,
            sender=sender,
            transactions=transactions,
            queue=queue,
            schedule=builder.schedule,
            clock=boottime,
        )

    return builder.worker(make_sender, Duty(leadership, is_own=is_own, name=name))


class _WorkerBuilder:
    """What the workers of every kind of delivery have."""

    def __init__(
        self,
        shard: _Shard,
        settings: RelaySettings,
        reading: ReadHarvest,
        settling: HarvestedTable,
    ) -> None:
        self.engine = Engine(settings)
        self.is_trusted = Trust(shard.leadership, boottime)
        self.schedule = PollSchedule(
            busy_interval=settings.busy_interval, idle_interval=settings.idle_interval
        )
        self.reader = PageReader(
            reading,
            is_trusted=self.is_trusted,
            clock=boottime,
            outage_log=shard.outage_log,
        )
        self.settler = Settler(
            outbox=settling,
            on_parked=partial(shard.threads.parked, shard.leadership.shard),
            clock=boottime,
            outage_log=shard.outage_log,
        )
        self.outages: tuple[Availability, ...] = (
            self.reader.outage,
            self.settler.outage,
        )
        self._reading, self._settling = reading, settling
        self._settings = settings
        self._shard = shard

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
                    self._shard.leadership,
                    outages=self.outages,
                    deadline=self._shard.options.DATABASE_DEADLINE,
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
            deliveries=Deliveries(is_traced=self._shard.options.TRACING),
        )


def _releaser(
    o: OutboxSettings,
    adapters: Adapters,
    threads: HarvesterThreads,
    outage_log: OutageLog,
) -> Releaser:
    return Releaser(
        adapters.staging(),
        interval=o.POLL_INTERVAL,
        on_expired=threads.expired,
        clock=boottime,
        outage_log=outage_log,
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
        learn: Learn,
        outage_log: OutageLog | None = None,
    ) -> None:
        self._table = table
        self._options = options
        self._learn = learn
        self._outage = Availability(outage_log=outage_log)

    def __call__(self) -> bool:
        try:
            self._table.ping()
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
