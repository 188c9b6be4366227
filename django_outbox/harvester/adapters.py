"""
The real collaborators of a harvester, each from one provider.

`harvester/harvester.py` calls the providers on start. Tests replace one of them to wrap
faults round the real client: `dataclasses.replace(providers, producer=...)`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from ..election.ports import Membership
from ..election.solo import SoloMembership
from ..kafka.membership import KafkaMembership
from ..kafka.producer import KafkaProducer
from ..kafka.transactions import KafkaTransactions
from ..kafka.validation import check_properties
from ..message.record import Identity
from ..postgres.connection import Database, Limits, Params
from ..postgres.listening import Listener
from ..postgres.marked_table import PostgresOutbox
from ..postgres.outbox_identity import KnownOutbox
from ..postgres.outbox_table import Table as PostgresTable
from ..postgres.staged_tables import PostgresStaging
from ..postgres.takeover_sql import Scope
from ..postgres.unmarked_table import RememberedOutbox, UnmarkedOutbox
from ..relay.ledger.ports import Transactions
from ..relay.ports import Outbox, Producer, SettledTable, Staging, UnmarkedTable
from ..settings.options import OutboxSettings
from .components import Table
from .workers import Listening


class HarvestedTable(Outbox, Table, Protocol):
    """All that a harvester does with the table."""


class UnmarkedHarvest(UnmarkedTable, SettledTable, Table, Protocol):
    """All that a harvester does with the table when it marks nothing."""


AdapterT = TypeVar("AdapterT", bound=PostgresTable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapters:
    """
    How a harvester gets its collaborators; each call makes a new one.

    Until `learn` was called, only tables can be made: what speaks to Kafka needs
    names that the database may have to give.
    """

    table: Callable[[str], HarvestedTable]
    """Given the concern it serves, for the connection's application name."""
    unmarked: Callable[[str, int], UnmarkedHarvest]
    """The same table, for the exactly-once relay; given also the cluster whose rows
    it shows: if that is another one, those that may be taken over."""
    producer: Callable[[], Producer]
    transactions: Callable[[Membership, int], Transactions]
    """The exactly-once relay's producer, given the group that elects its leader, and
    the cluster whose records it carries."""
    membership: Callable[[], Membership]
    staging: Callable[[], Staging | None] = lambda: None
    """None: nothing is ever staged."""
    listener: Callable[[], Listening | None] = lambda: None
    """None: nobody notifies."""
    learn: Callable[[Identity | None], OutboxSettings] | None = None
    """Take what the database says of the outbox; see `KnownOutbox`. None: these
    collaborators have no use for it."""
    database: str = ""
    """Django's alias of the table's database, for those who receive signals."""

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
        Provide PostgreSQL and Kafka.

        Args:
            conninfo: see `Database`.
            name: the process, for client ids and connections.
            table: name of the outbox table, perhaps with its schema.
            solo: lead without an election.

        Raises:
            ConfigurationError: a property in KAFKA is wrong.
        """
        check_properties(options)
        known = KnownOutbox(options, table=table)
        limits = Limits.within(options.DATABASE_DEADLINE)

        def connect(concern: str) -> Database:
            return Database(
                conninfo,
                application_name=f"outbox {concern} {name}",
                limits=limits,
                # A mark that a crash takes back is made again; a purge is not.
                is_durable=concern != "mark",
            )

        def adapt(
            adapter: type[AdapterT], concern: str, cluster: int = options.CLUSTER_ID
        ) -> AdapterT:
            return adapter(
                connect(concern),
                table=table,
                # Where it is not known yet, no record is read.
                source=known.options.source if known.options.is_named else "",
                has_archive=options.ARCHIVE,
                scope=_scope_of(options, cluster),
                page_bytes=options.page_bytes,
            )

        def make_transactions(membership: Membership, cluster: int) -> Transactions:
            member = membership if isinstance(membership, KafkaMembership) else None
            return KafkaTransactions(
                known.options,
                fencing_token=(lambda: member.fencing_token) if member else None,
                name=name,
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

        return cls(
            table=(
                partial(adapt, RememberedOutbox)
                if options.MARKS == "memory"
                else partial(adapt, PostgresOutbox)
            ),
            unmarked=partial(adapt, UnmarkedOutbox),
            staging=make_staging,
            listener=make_listener,
            producer=lambda: KafkaProducer(known.options, name=name),
            transactions=make_transactions,
            membership=SoloMembership if solo else make_membership,
            learn=known.learn,
        )


def _scope_of(options: OutboxSettings, cluster: int) -> Scope | None:
    """Return which rows are looked for; None: there is only one cluster."""
    if options.CLUSTERS_COUNT == 1:
        return None
    return Scope(
        this_cluster=options.CLUSTER_ID,
        clusters=options.CLUSTERS_COUNT,
        maximum_delay=options.MAXIMUM_DELAY,
        source_cluster=cluster if cluster != options.CLUSTER_ID else None,
        takes_over=not options.is_exactly_once,
    )
