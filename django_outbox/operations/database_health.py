"""What the database of an outbox costs: durability, vacuum, rights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from ..postgres.database_facts import DatabaseFacts, Privilege, ServerFacts, TableFacts
from ..postgres.statements import quoted
from ..settings.options import OutboxSettings
from ..wording import count, duration
from . import finding_kinds as kinds
from .finding import Finding

MAX_DEAD_ROWS: Final = 1_000_000
"""Dead rows that are too many at any time."""

MAX_DEAD_ROWS_UNVACUUMED: Final = 100_000
"""Dead rows that are too many if no vacuum has run lately."""

VACUUM_INTERVAL: Final = 600.0
"""Seconds within which a table with many dead rows should have been vacuumed."""

MAX_SLOT_XMIN_AGE: Final = 1_000_000
"""Transactions for which a slot may keep deleted rows."""

MAX_SLOT_WAL_BYTES: Final = 1024**3
"""Bytes of WAL that an inactive slot may keep."""

_NO_WAIT: Final = frozenset({"off", "false", "no", "0"})
"""Values of `synchronous_commit` with which a commit does not wait for the disk."""

_RELOAD: Final = "SELECT pg_reload_conf();"


def database_findings(
    facts: DatabaseFacts, options: OutboxSettings
) -> Iterator[Finding]:
    """Check a database and its outbox, for one harvester's settings."""
    database = f" --database={options.DATABASE}" if options.DATABASE else ""
    yield from _server(facts.server)
    yield from _commits(facts)
    if facts.absent:
        yield Finding(
            kind=kinds.TABLE_MISSING,
            subject="database",
            seen="no " + ", ".join(f"{options.TABLE}{one}" for one in facts.absent),
            cure=f"python manage.py migrate django_outbox{database}",
        )
    for table in facts.tables:
        yield from _table(table)
    yield from _horizon(facts)
    if not facts.server.sees_all_sessions:
        yield Finding(
            kind=kinds.NOT_EXAMINED,
            subject="database: transactions of other roles",
            seen=f"role {facts.server.role} does not see them",
            cure=f"GRANT pg_read_all_stats TO {quoted(facts.server.role)};",
        )
    if facts.sequence and facts.sequence.cache > 1:
        yield Finding(
            kind=kinds.SEQUENCE_CACHE,
            subject=f"sequence {facts.sequence.name}",
            seen=f"CACHE {facts.sequence.cache}",
            cure=f"ALTER SEQUENCE {facts.sequence.name} CACHE 1;",
        )
    if facts.missing:
        yield Finding(
            kind=kinds.GRANTS,
            subject=f"role {facts.role}",
            seen="lacks " + ", ".join(_grouped(facts.missing, options.TABLE)),
            cure=f"run what python manage.py outbox grants --harvester {facts.role}"
            f"{database} prints",
        )
    if facts.is_pooled and options.NOTIFY:
        yield Finding(
            kind=kinds.POOLER,
            subject="setting NOTIFY",
            seen="NOTIFY = True behind a pooler that may change the server process",
            cure="give the harvester a direct connection, or set NOTIFY = False",
        )


def _server(server: ServerFacts) -> Iterator[Finding]:
    if server.is_standby:
        yield Finding(
            kind=kinds.STANDBY,
            subject="database",
            seen="the server is a standby",
            cure="connect to the primary: in OPTIONS of DATABASES"
            ' "target_session_attrs": "read-write"',
        )
    elif server.is_read_only:
        yield Finding(
            kind=kinds.STANDBY,
            subject="database",
            seen="default_transaction_read_only = on",
            cure=f"ALTER ROLE {quoted(server.role)}"
            " SET default_transaction_read_only = off;",
        )
    for kind, is_on, name in (
        (kinds.FSYNC, server.fsync, "fsync"),
        (kinds.FULL_PAGE_WRITES, server.full_page_writes, "full_page_writes"),
        (kinds.AUTOVACUUM, server.autovacuum, "autovacuum"),
    ):
        if not is_on:
            # Autovacuum needs both.
            names = [name, "track_counts"] if name == "autovacuum" else [name]
            statements = [f"ALTER SYSTEM SET {name} = on;" for name in names]
            yield Finding(
                kind=kind,
                subject="database",
                seen=f"{' or '.join(names)} = off",
                cure=" ".join([*statements, _RELOAD]),
            )


def _commits(facts: DatabaseFacts) -> Iterator[Finding]:
    """Check who commits without waiting for the disk, or for the standby."""
    value = facts.server.synchronous_commit
    has_standbys = bool(facts.server.synchronous_standby_names)
    if value in _NO_WAIT or (value == "local" and has_standbys):
        yield _loose("database", value, "ALTER SYSTEM SET synchronous_commit = on;")
    for role, database, value in facts.loose_commits:
        if value not in _NO_WAIT:
            continue
        place = [f"role {role}"] if role else []
        place += [f"database {database}"] if database else []
        target = f"ROLE {quoted(role) if role else 'ALL'}"
        if database:
            in_database = f"DATABASE {quoted(database)}"
            target = f"{target} IN {in_database}" if role else in_database
        yield _loose(
            " in ".join(place) or "all roles",
            value,
            f"ALTER {target} RESET synchronous_commit;",
        )


def _loose(subject: str, value: str, cure: str) -> Finding:
    if cure.startswith("ALTER SYSTEM"):
        cure = f"{cure} {_RELOAD}"
    return Finding(
        kind=kinds.SYNCHRONOUS_COMMIT,
        subject=subject,
        seen=f"synchronous_commit = {value}",
        cure=cure,
    )


def _table(table: TableFacts) -> Iterator[Finding]:
    subject = f"table {table.name}"
    if table.is_unlogged:
        yield Finding(
            kind=kinds.UNLOGGED_TABLE,
            subject=subject,
            seen="UNLOGGED",
            cure=f"ALTER TABLE {quoted(table.name)} SET LOGGED;",
        )
    if not table.is_vacuumed:
        yield Finding(
            kind=kinds.AUTOVACUUM,
            subject=subject,
            seen="autovacuum_enabled = off",
            cure=f"ALTER TABLE {quoted(table.name)} RESET (autovacuum_enabled);",
        )
    is_late = table.vacuumed is None or table.vacuumed > VACUUM_INTERVAL
    if table.dead > table.live and (
        table.dead >= MAX_DEAD_ROWS
        or (table.dead >= MAX_DEAD_ROWS_UNVACUUMED and is_late)
    ):
        last = "never" if table.vacuumed is None else f"{duration(table.vacuumed)} ago"
        yield Finding(
            kind=kinds.DEAD_ROWS,
            subject=subject,
            seen=f"{count(table.dead, 'dead row')} beside {table.live:,} live,"
            f" {table.size / 1024**2:,.0f} MiB, last vacuum {last}",
            cure="end what holds deleted rows (old-transaction, prepared-transaction,"
            f" replication-slot), then VACUUM {quoted(table.name)};",
        )


def _horizon(facts: DatabaseFacts) -> Iterator[Finding]:
    """Report what keeps deleted rows from being removed, or WAL."""
    for pid, application, state, age in facts.transactions:
        yield Finding(
            kind=kinds.OLD_TRANSACTION,
            subject=f"session {pid}",
            seen=f"{application or 'no application_name'}, {state or 'state unknown'},"
            f" open for {duration(age)}",
            cure=f"SELECT pg_terminate_backend({pid});",
        )
    for name, age in facts.prepared:
        gid = name.replace("'", "''")
        yield Finding(
            kind=kinds.PREPARED_TRANSACTION,
            subject=f"prepared transaction {name}",
            seen=f"open for {duration(age)}",
            cure=f"COMMIT PREPARED '{gid}'; or ROLLBACK PREPARED '{gid}';",
        )
    for slot in facts.slots:
        reasons = []
        if slot.status in {"unreserved", "lost"}:
            reasons.append(f"wal_status = {slot.status}")
        if not slot.is_active and slot.retained >= MAX_SLOT_WAL_BYTES:
            reasons.append(f"inactive, keeps {slot.retained / 1024**3:,.1f} GiB of WAL")
        if slot.xmin_age >= MAX_SLOT_XMIN_AGE:
            reasons.append(f"keeps rows for {slot.xmin_age:,} transactions")
        if reasons:
            yield Finding(
                kind=kinds.REPLICATION_SLOT,
                subject=f"slot {slot.name}",
                seen=", ".join(reasons),
                cure="start its reader, or SELECT"
                f" pg_drop_replication_slot('{slot.name}');",
            )


def _grouped(missing: Sequence[Privilege], table: str) -> Iterator[str]:
    """Name each privilege of each object once: `INSERT on outbox_parked`."""
    for (kind, suffix), rights in groupby(
        missing, key=lambda one: (one.kind, one.suffix)
    ):
        names = dict.fromkeys(right.privilege for right in rights)
        before = {"schema": "the schema of ", "function": "function "}.get(kind, "")
        yield f"{' and '.join(names)} on {before}{table}{suffix}"
