"""
How rows and ids of one of several clusters are numbered: check it, and set it up.

Each cluster writes its own number into its rows and draws ids that no other
cluster draws, without asking another: the ids of cluster *i* of *n* leave the
remainder *i* when they are divided by *n*. The database does both, so that
plain SQL works unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ..exceptions import ConfigurationError
from ..message.record import Numbering
from ..postgres.outbox_schema import Schema, qualified
from ..postgres.statements import queries, quoted
from ..settings.options import OutboxSettings

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

LOCK_TIMEOUT: Final = "3s"
"""Short, since all writers wait behind a statement that waits for its lock."""

NEXT_STEP: Final = "Run `manage.py outbox cluster init`."

_NUMBER: Final = re.compile(r"'?(-?\d+)'?(?:::\w+)?")


def read_numbering(connection: BaseDatabaseWrapper, table: str) -> Numbering:
    """Read how an outbox is numbered, through Django's connection."""
    names = {
        "table": quoted(table),
        "staged": quoted(f"{table}_staged"),
    }
    with connection.cursor() as cursor:
        cursor.execute(queries()["numbering"], names)
        return Numbering(*cursor.fetchone())


def mismatches(numbering: Numbering, *, cluster: int, count: int) -> Iterator[str]:
    """Yield a sentence for each property that does not fit this cluster."""
    defaults = {"": numbering.default, "_staged": numbering.staged_default}
    for suffix, default in defaults.items():
        if _number(default) != cluster and not (suffix and default is None):
            yield f"new rows get cluster_id {default} by default, not {cluster}"
            break
    if numbering.sequence is None:
        yield "ids are not drawn from a sequence of the column id"
    elif numbering.increment != count or (numbering.last_id or 0) % count != cluster:
        yield (
            f"{numbering.sequence} draws every id {numbering.increment} after the one "
            f"before, like {numbering.last_id}, instead of every {count}, with the "
            f"remainder {cluster}"
        )


def check(numbering: Numbering | None, options: OutboxSettings) -> None:
    """
    Refuse an outbox that is not numbered for the cluster in the settings.

    Raises:
        ConfigurationError: says what does not fit, and what to do.
    """
    found = numbering and mismatches(
        numbering, cluster=options.CLUSTER_ID, count=options.CLUSTERS_COUNT
    )
    if wrong := "; ".join(found or ()):
        raise ConfigurationError(f"CLUSTER_ID: {wrong}. {NEXT_STEP}")


def statements(
    table: str,
    numbering: Numbering,
    *,
    cluster: int,
    count: int,
    above: int = 0,
    schema: Schema | None = None,
) -> list[str]:
    """
    Return the SQL that numbers a table for this cluster; none if it is up to date.

    Run it in one transaction. It locks out writers, so that no id is drawn between
    reading the last one and choosing the next.

    Args:
        table: name of the outbox table.
        numbering: its current numbering.
        cluster: number of the cluster.
        count: number of clusters.
        above: the next id is higher than this, and than all ids in the database.
        schema: of the table; None: the `search_path` finds it.
    """
    tables = [
        qualified(schema, table + suffix) for suffix in ("", "_parked", "_staged")
    ]
    outbox, parked, staged = tables
    changes = [
        f"ALTER TABLE {name} ALTER COLUMN cluster_id SET DEFAULT {cluster};"
        for name, default in (
            (outbox, numbering.default),
            (staged, numbering.staged_default),
        )
        if _number(default) != cluster
    ]
    last = numbering.last_id or 0
    if numbering.increment != count or last % count != cluster or last <= above:
        changes.append(_interleave(outbox, parked, cluster, count, above))
    if not changes:
        return []
    return [
        f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}';",
        # Ids are drawn by writes to the first table or, for an expired series, to
        # the second; staged messages get their cluster when they are written.
        f"LOCK TABLE {', '.join(tables)} IN ACCESS EXCLUSIVE MODE;",
        *changes,
    ]


def _interleave(outbox: str, parked: str, cluster: int, count: int, above: int) -> str:
    """
    Return the SQL that makes the sequence continue in steps, above all drawn ids.

    TRUNCATE ... RESTART IDENTITY goes back to START WITH. The archive is not read:
    its ids were drawn here, or elsewhere with another remainder.
    """
    return f"""\
DO $cluster$
DECLARE
    drawn text := pg_get_serial_sequence('{_literal(outbox)}', 'id');
    last bigint;
BEGIN
    EXECUTE format('ALTER SEQUENCE %s INCREMENT BY {count}', drawn);
    EXECUTE format('SELECT last_value - (NOT is_called)::integer FROM %s', drawn)
        INTO last;
    last := greatest(
        last,
        {above},
        (SELECT max(id) FROM {outbox}),
        (SELECT max(id) FROM {parked})
    );
    EXECUTE format(
        'ALTER SEQUENCE %s START WITH %s RESTART',
        drawn,
        last + 1 + mod({cluster} - mod(last + 1, {count}) + {count}, {count})
    );
END
$cluster$;"""  # noqa: S608 - a name that is quoted, and numbers


def _number(default: str | None) -> int | None:
    """Read the number of an SQL expression such as `'1'::smallint`."""
    match = _NUMBER.fullmatch(default or "")
    return int(match[1]) if match else None


def _literal(text: str) -> str:
    return text.replace("'", "''")
