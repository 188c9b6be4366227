"""
The minimal privileges that each role needs on the tables, as SQL to run.

The tests run under these privileges.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..postgres.outbox_schema import Schema, qualified
from ..postgres.statements import quoted
from .needed_privileges import MOVED, PRUNED, RELEASED

_WRITTEN: Final = ", ".join(("create_time", *RELEASED))
"""The columns that a writer may set: neither the id nor the mark."""

_MOVED: Final = ", ".join(MOVED)
"""The columns that the harvester may set of a row that it moves: neither `parked_at`
nor `archived_at`."""

_PRUNED: Final = ", ".join(PRUNED)
"""The columns by which the harvester finds old keys."""

_PAUSED: Final = "kafka_topic, kafka_key, paused_at, reason"
"""The columns of a pause, but for its id."""

_JOINED: Final = "name, expected, staged, expires_at, on_timeout"
"""The columns that a writer may set of a series that it opens."""


def grants(
    table: str,
    schema: Schema | None = None,
    /,
    *,
    app: str | None = None,
    harvester: str | None = None,
    consumer: str | None = None,
    operator: str | None = None,
) -> Iterator[str]:
    """
    Yield GRANT statements for the roles that are named.

    Args:
        table: The name of the outbox table.
        schema: The schema of the table; None: the `search_path` finds it.
        app: The role that calls `stash()`; it can read back only what is staged,
            because it moves its series into the outbox itself.
        harvester: The role of `runharvester`, which also prunes processed keys
            and the archive.
        consumer: The role of `runconsumer` and of everything that calls `once()`.
        operator: The role of the admin site and of `manage.py outbox`.
    """
    outbox, parked, archive, staged, series, identity, ids = (
        qualified(schema, table + suffix)
        for suffix in (
            *("", "_parked", "_archive", "_staged", "_series", "_identity", "_id_seq"),
        )
    )
    processed, offsets, pauses, tend = (
        qualified(schema, table + suffix)
        for suffix in ("_processed", "_offsets", "_pauses", "_archive_tend")
    )
    if schema and not schema.is_open:
        roles = filter(None, (app, harvester, consumer, operator))
        for name in dict.fromkeys(roles):
            yield f"GRANT USAGE ON SCHEMA {quoted(schema.name)} TO {quoted(name)};"
    if app:
        role = quoted(app)
        yield f"GRANT INSERT ({_WRITTEN}) ON {outbox} TO {role};"
        yield f"GRANT SELECT, DELETE ON {staged} TO {role};"
        yield (
            f"GRANT INSERT ({_WRITTEN}, series_id, not_before) ON {staged} TO {role};"
        )
        yield f"GRANT SELECT, INSERT ({_JOINED}) ON {series} TO {role};"
        yield (
            f"GRANT UPDATE (expected, staged, state, closed_at) ON {series} TO {role};"
        )
    if harvester:
        role = quoted(harvester)
        yield f"GRANT SELECT, DELETE ON {outbox} TO {role};"
        yield f"GRANT UPDATE (leader_id, attempts, last_error) ON {outbox} TO {role};"
        yield f"GRANT INSERT ({_MOVED}) ON {parked}, {archive} TO {role};"
        yield f"GRANT EXECUTE ON FUNCTION {tend} TO {role};"
        # Staged messages move to the outbox or, with an id of the outbox, to the
        # parked table.
        yield f"GRANT INSERT ({_WRITTEN}) ON {outbox} TO {role};"
        yield f"GRANT USAGE ON SEQUENCE {ids} TO {role};"
        yield f"GRANT SELECT, DELETE ON {staged}, {series} TO {role};"
        yield f"GRANT UPDATE (state, closed_at) ON {series} TO {role};"
        # Nothing is updated, but PostgreSQL requires it for SKIP LOCKED.
        yield f"GRANT UPDATE (not_before) ON {staged} TO {role};"
        # Not the column `response`, which only consumers need.
        yield f"GRANT SELECT ({_PRUNED}), DELETE ON {processed} TO {role};"
        yield f"GRANT SELECT ON {identity}, {pauses} TO {role};"
    if consumer:
        role = quoted(consumer)
        # A handler may read which outbox a message is from.
        yield f"GRANT SELECT ON {identity} TO {role};"
        yield f"GRANT SELECT, INSERT, UPDATE (response) ON {processed} TO {role};"
        yield f"GRANT SELECT, INSERT, UPDATE ON {offsets} TO {role};"
    if operator:
        role = quoted(operator)
        yield f"GRANT SELECT, DELETE, INSERT (id, {_WRITTEN}) ON {outbox} TO {role};"
        yield f"GRANT INSERT ({_MOVED}) ON {parked} TO {role};"
        yield f"GRANT SELECT, DELETE ON {parked}, {archive}, {staged} TO {role};"
        yield f"GRANT SELECT, UPDATE (state, closed_at) ON {series} TO {role};"
        yield f"GRANT SELECT, DELETE ON {processed} TO {role};"
        yield f"GRANT SELECT, DELETE, INSERT ({_PAUSED}) ON {pauses} TO {role};"
        rewound = "next_offset, topic_id, updated_at"
        yield f"GRANT SELECT, UPDATE ({rewound}) ON {offsets} TO {role};"
        yield f"GRANT SELECT, INSERT (is_only) ON {identity} TO {role};"
        yield f"GRANT UPDATE (outbox, created_at) ON {identity} TO {role};"
