"""
Factories for the adapters of PostgreSQL and Kafka that a harvester works with.

Tests replace one of them to wrap faults round the real client:
`dataclasses.replace(adapters, producer=...)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from ..clock import boottime
from ..election.ports import Membership
from ..election.solo import SoloMembership
from ..kafka.batch_limit import BatchLimit
from ..kafka.config import admin_config
from ..kafka.membership import KafkaMembership
from ..kafka.producer import KafkaProducer
from ..kafka.transactions import KafkaTransactions
from ..kafka.validation import check_properties
from ..message.middleware import load, overriding
from ..message.pauses import Pauses
from ..message.record import Identity, TopicCounts
from ..postgres.connection import Database, Limits, Params
from ..postgres.health_reader import HealthReader
from ..postgres.listening import Listener
from ..postgres.marked_table import PostgresOutbox
from ..postgres.outbox_identity import KnownOutbox
from ..postgres.outbox_table import Table as PostgresTable
from ..postgres.shard_sql import ShardScope
from ..postgres.staged_tables import PostgresStaging
from ..postgres.takeover_sql import Scope
from ..postgres.unmarked_table import UnmarkedOutbox
from ..relay.ledger.ports import Transactions
from ..relay.memory_marks import MemoryMarks
from ..relay.ports import (
    Producer,
    ReadTable,
    SettledTable,
    Staging,
)
from ..settings.options import OutboxSettings
from .components import Listening, MeteredTable
from .hooked_table import HookedTable
from .workers import Closable


class Statistics(Protocol):
    """
    Figures of the table for people who watch it.

    Every method may block up to the statement time-out, and raises `DatabaseError`
    when there is no answer.
    """

    def topics(self, *, limit: int) -> TopicCounts:
        """Count the rows by topic, up to a cap; name at most `limit` topics."""

    def writer_ages(self) -> Mapping[str, float | None]:
        """
        Return how long each transaction that writes to the table has been open.

        In seconds, by its name; None: the role may not see when it began.
        """

    def dead_tuples(self) -> int:
        """Estimate how many deleted or replaced rows wait for a vacuum."""

    def pauses(self) -> Pauses:
        """Return what an operator has paused."""


class HarvestedTable(SettledTable, MeteredTable, Statistics, Protocol):
    """The outbox table, as the harvester and every relay use it."""


class ReadHarvest(ReadTable, Closable, Protocol):
    """The outbox table, as a relay reads it."""


AdapterT = TypeVar("AdapterT", bound=PostgresTable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapters:
    """
    Factories for the collaborators of a harvester; each call makes a new one.

    Before `learn` was called, only tables can be made: Kafka clients need names
    that may be derived from the identity in the database.
    """

    table: Callable[[str], HarvestedTable]
    """Takes the purpose, for the connection's application name."""
    reading: Callable[[str, int, int], ReadHarvest]
    """The same table with the leader's marks. Takes also the cluster and the shard
    whose rows it reads; of another cluster, only rows that may be taken over."""
    producer: Callable[[str], Producer]
    """Takes the topic of its first record."""
    transactions: Callable[[Membership, int, int], Transactions]
    """The exactly-once relay's producer. Takes the group that elects its leader, and
    the cluster and the shard whose records it relays."""
    membership: Callable[[], Membership]
    staging: Callable[[], Staging | None] = lambda: None
    """None: nothing is ever staged."""
    listener: Callable[[], Listening | None] = lambda: None
    """None: writers do not notify."""
    learn: Callable[[Identity | None], OutboxSettings] | None = None
    """Takes the identity that the database holds; see `KnownOutbox`. None: these
    adapters do not need it."""
    health: Callable[[], HealthReader] | None = None
    """Reads what the doctor wants to know. None: it examines nothing."""
    database: str = ""
    """Django's alias of the table's database, for receivers of signals."""

    @classmethod
    def real(
        cls,
        options: OutboxSettings,
        conninfo: Params,
        *,
        name: str,
        table: str,
        solo: bool,
    ) -> Adapters:
        """
        Return the adapters of PostgreSQL and Kafka.

        Args:
            conninfo: see `Database`.
            name: the process, for client ids and connections.
            table: name of the outbox table, perhaps with its schema.
            solo: lead without an election.

        Raises:
            ConfigurationError: a property in KAFKA, or MIDDLEWARE, is wrong.
        """
        check_properties(options)
        known = KnownOutbox(options, table=table)
        limits = Limits.within(options.DATABASE_DEADLINE)

        def connect(concern: str, *, is_durable: bool = True) -> Database:
            return Database(
                conninfo,
                application_name=f"outbox {concern} {name}",
                limits=limits,
                is_durable=is_durable,
            )

        def adapt(
            adapter: type[AdapterT],
            concern: str,
            cluster: int = options.CLUSTER_ID,
            shard: int | None = None,
            *,
            is_durable: bool = True,
        ) -> AdapterT:
            return adapter(
                connect(concern, is_durable=is_durable),
                table=table,
                # Before the names are known, no record is read.
                source=known.options.source if known.options.is_named else "",
                has_archive=options.ARCHIVE,
                scope=_scope_of(options, cluster, shard),
                page_bytes=options.page_bytes,
            )

        def make_transactions(
            membership: Membership, cluster: int, shard: int
        ) -> Transactions:
            member = membership if isinstance(membership, KafkaMembership) else None
            return KafkaTransactions(
                known.options,
                fencing_token=(
                    (lambda: member.fencing_tokens.get(shard)) if member else None
                ),
                name=name,
                shard=shard,
                origin=cluster,
            )

        def make_membership() -> Membership:
            return KafkaMembership(
                known.options, name=name, identity=lambda: known.identity
            )

        def make_staging() -> Staging:
            retention = options.SERIES_RETENTION
            return PostgresStaging(connect("stage"), table=table, retention=retention)

        def make_listener() -> Listening | None:
            if not options.NOTIFY:
                return None
            return Listener(connect("listen"), table=table)

        is_exactly_once = options.is_exactly_once
        has_marks = options.MARKS == "table" and not is_exactly_once

        def make_reading(concern: str, cluster: int, shard: int) -> ReadHarvest:
            if has_marks:
                # A mark that a crash loses is made again; a lost purge is not.
                return adapt(PostgresOutbox, concern, is_durable=False)
            unmarked = adapt(UnmarkedOutbox, concern, cluster, shard)
            # A ledger names a timeline, whether or not a pooler may change it.
            timeline = (
                unmarked.database_timeline
                if is_exactly_once
                else unmarked.pooled_timeline
            )
            by_scans = is_exactly_once and cluster != options.CLUSTER_ID
            return MemoryMarks(
                unmarked, clock=boottime, timeline=timeline, by_scans=by_scans
            )

        return cls(
            table=partial(adapt, PostgresOutbox if has_marks else UnmarkedOutbox),
            reading=_hooked(make_reading, options),
            staging=make_staging,
            listener=make_listener,
            producer=partial(
                _make_producer, known, name, BatchLimit(admin_config(options))
            ),
            transactions=make_transactions,
            membership=SoloMembership if solo else make_membership,
            health=lambda: HealthReader(connect("doctor"), table=table),
            learn=known.learn,
        )


def _hooked(
    make: Callable[[str, int, int], ReadHarvest], options: OutboxSettings
) -> Callable[[str, int, int], ReadHarvest]:
    """Have every record that is read pass MIDDLEWARE."""
    hooks = overriding(load(options.MIDDLEWARE), "produce")
    if not hooks:
        return make
    return lambda *arguments: HookedTable(make(*arguments), hooks)


def _make_producer(
    known: KnownOutbox, name: str, limit: BatchLimit, topic: str
) -> KafkaProducer:
    return KafkaProducer(known.options, name=name, limit=limit).connect(topic)


def _scope_of(
    options: OutboxSettings, cluster: int, shard: int | None
) -> Scope | ShardScope | None:
    """Return which rows to read; None: all of them."""
    if options.SHARDS > 1 and shard is not None:
        return ShardScope(shard=shard, shards=options.SHARDS)
    if options.CLUSTERS_COUNT == 1:
        return None
    return Scope(
        this_cluster=options.CLUSTER_ID,
        clusters=options.CLUSTERS_COUNT,
        maximum_delay=options.MAXIMUM_DELAY,
        source_cluster=cluster if cluster != options.CLUSTER_ID else None,
        takes_over=not options.is_exactly_once,
    )
