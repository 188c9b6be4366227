"""
What makes an outbox one of several clusters: is it right, and how to make it so.

Each cluster writes its own number into its rows and draws ids that no other
cluster draws, although no cluster asks another: the ids of cluster *i* of *n*
leave the remainder *i* when they are divided by *n*. The database does both,
so that plain SQL needs to know nothing of it. `manage.py outbox cluster init`
runs the statements; checks and the harvester ask whether it has run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ..exceptions import ConfigurationError
from ..message.record import Numbering
from ..postgres.statements import queries, quoted
from ..settings.options import OutboxSettings

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

LOCK_TIMEOUT: Final = "3s"
"""Writers wait behind the statement that waits for a lock: not for long."""

NEXT_STEP: Final = "Run `manage.py outbox cluster init`."

_NUMBER: Final = re.compile(r"'?(-?\d+)'?(?:::\w+)?")


def read_numbering(connection: BaseDatabaseWrapper, table: str) -> Numbering:
    """Look at an outbox through a connection of Django's."""
    names = {
        "table": quoted(table),
        "staged": quoted(f"{table}_staged"),
    }
    with connection.cursor() as cursor:
        cursor.execute(queries()["numbering"], names)
        return Numbering(*cursor.fetchone())


def mismatches(numbering: Numbering, *, cluster: int, count: int) -> Iterator[str]:
    """Yield what does not fit this cluster, in words for the person who can mend it."""
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
    Refuse an outbox that is not that of the cluster in the settings.

    Raises:
        ConfigurationError: it is another's, or nobody's; it says what to do.
    """
    found = numbering and mismatches(
        numbering, cluster=options.CLUSTER_ID, count=options.CLUSTERS_COUNT
    )
    if wrong := "; ".join(found or ()):
        raise ConfigurationError(f"CLUSTER_ID: {wrong}. {NEXT_STEP}")


def statements(
    table: str, numbering: Numbering, *, cluster: int, count: int, above: int = 0
) -> list[str]:
    """
    Return what turns a table into that of this cluster; nothing if it is that.

    To be run in one transaction. Nobody writes meanwhile, so that no id is
    drawn between the look at the last one and the choice of the next.

    Args:
        table: name of the outbox table.
        numbering: what it is like now.
        cluster: number of the cluster.
        count: clusters in all.
        above: the next id is higher, whatever this database has seen.
    """
    tables = [quoted(table + suffix) for suffix in ("", "_parked", "_staged")]
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
        # Whoever draws an id writes to the first or, for an expired series, to
        # the second; what is staged gets its cluster when it is written.
        f"LOCK TABLE {', '.join(tables)} IN ACCESS EXCLUSIVE MODE;",
        *changes,
    ]


def _interleave(outbox: str, parked: str, cluster: int, count: int, above: int) -> str:
    """
    Return what makes the sequence go on in steps, behind all that was drawn.

    START WITH is what TRUNCATE ... RESTART IDENTITY goes back to. The archive
    is not asked: its ids were drawn here, or elsewhere with another remainder.
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
