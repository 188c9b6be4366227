"""
The statements of `queries.sql`, fitted to one table.

A table that has only goharvest's columns gets the same statements, with an
expression in place of each column that it lacks.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import cache
from importlib import resources
from typing import Final, LiteralString

from psycopg import sql

from ..message.channel import channel_of
from .shard_sql import ShardScope
from .takeover_sql import Scope

_NAME: Final = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_COMMENT: Final = re.compile(r"^--.*\n", re.MULTILINE)

_CREATED_AT: Final[LiteralString] = """
CASE
    WHEN o.create_time BETWEEN '1900-01-01 00:00+00' AND '2100-01-01 00:00+00'
        THEN (date_part('epoch', o.create_time) * 1000000)::bigint
    WHEN o.create_time BETWEEN '0001-01-01 00:00+00' AND '9999-12-31 23:59:59.999999+00'
        THEN (extract(epoch FROM o.create_time) * 1000000)::bigint
    ELSE 0
END"""
"""
Microseconds since the epoch; a row with an infinite time, or one out of the range
of a bigint, must not make a page fail.

In these two centuries a float has an error of less than half a microsecond, which
the cast rounds away; `extract()` returns a numeric, which takes twice as long.
"""

_SUBSTITUTES: Final[Mapping[LiteralString, LiteralString]] = {
    "kafka_value_bytes": "NULL::bytea",
    "kafka_partition": "NULL::integer",
    "cluster_id": "0::smallint",
    "attempts": "0::smallint",
    "last_error": "''",
    # The same row gets the same id from every harvester of this outbox.
    "message_id": f"md5(concat_ws(':', %(source)s::text, o.id, {_CREATED_AT}))::uuid",
}
"""The expression for each column that only django-outbox's own table has."""

_PAGES: Final = ("mark", "page", "page_after", "sweep")
"""Statements that return records; each has a twin that returns only their ids."""

_FIELDS: Final[LiteralString] = """
    o.id,
    o.kafka_topic,
    o.kafka_key,
    o.kafka_value,
    coalesce(o.kafka_header_keys, '{{}}'),
    coalesce(o.kafka_header_values, '{{}}'),
    {kafka_partition},
    {message_id}::text,
    {created_at}::text,
    {cluster_id},
    {attempts},
    {kafka_value_bytes}"""
"""The columns of a record, the binary value last."""

_HEADER_BYTES: Final[LiteralString] = """
    CASE
        WHEN pg_catalog.pg_column_compression({column}) IS NULL
            THEN coalesce(pg_catalog.pg_column_size({column}), 0)
        ELSE octet_length(pg_catalog.array_to_string({column}, ''))
    END"""
"""
Size of an array of texts, including PostgreSQL's overhead for each.

The size of a compressed array is known only when it is read; arrays of ordinary
messages are not compressed, and cost nothing. The names are qualified: both
functions take any type, so that a function of another schema could match better.
"""

_STORED_HEADER_BYTES: Final[LiteralString] = """
    coalesce(pg_catalog.pg_column_size({column}), 0)"""
"""The same without reading it: a row that cannot be read must not hide its id."""

_BYTES: Final[LiteralString] = """
    coalesce(octet_length(o.kafka_value), octet_length({kafka_value_bytes}), 0)
    + {header_name_bytes} + {header_value_bytes}"""
"""Bytes of the value and the headers of a row; no value is read, however large."""

_BYTES_BEFORE: Final[LiteralString] = """
    sum({bytes})
    OVER (ORDER BY o.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
    AS bytes_before"""
"""Bytes of values and headers before a row."""

_HEADER_COLUMNS: Final = {
    "header_name_bytes": "kafka_header_keys",
    "header_value_bytes": "kafka_header_values",
}

_FITS: Final[LiteralString] = "coalesce(o.bytes_before, 0) < %(page_bytes)s"

_UNPASSED: Final[LiteralString] = """(kafka_topic, kafka_key) NOT IN (
    SELECT given.topic, given.key
    FROM unnest(%(topics)s::text[], %(keys)s::text[]) AS given (topic, key)
)"""
"""Rows of all keys but some."""

MARKED: Final[LiteralString] = "o.leader_id = %(leader_id)s::uuid"
"""Rows that carry the leader's mark."""

IDENTIFIED: Final[LiteralString] = "{message_id} = ANY(%(message_ids)s::uuid[])"
"""Rows whose message id the leader has read: an id may be drawn twice."""

_LISTED: Final[LiteralString] = "o.id = ANY(%(ids)s::bigint[]) AND {owned}"

_RUN: Final[LiteralString] = """(
    o.id BETWEEN %(low)s::bigint AND %(high)s::bigint
    AND uuid_send({message_id}) = substr(
        %(run)s::bytea, (o.id - %(low)s::bigint)::integer * 16 + 1, 16
    )
)"""
"""Rows whose message id is the one at their place in the run: it has 16 bytes for
each id from the lowest to the highest. The server neither parses nor hashes it."""

_PURGES: Final = ("purge", "archive")
"""Statements that delete the rows of a list; each has a twin for a run."""

_UNMARKED: Final = (*_PURGES, "kept")
"""Statements that have a twin for rows that any leader has marked."""


@cache
def queries() -> Mapping[str, LiteralString]:
    """Read `queries.sql`: each statement by its name, which is its first line."""
    text = resources.files(__package__).joinpath("queries.sql").read_text("utf-8")
    _, *blocks = _NAME.split(text)
    return {
        name: f"-- outbox: {name}\n{_COMMENT.sub('', body).strip()}"
        for name, body in zip(blocks[::2], blocks[1::2], strict=True)
    }


def identifier(table: str, *, suffix: str = "") -> sql.Identifier:
    """Quote a table's name, with its schema when it has one."""
    schema, _, name = table.rpartition(".")
    return sql.Identifier(*filter(None, (schema,)), f"{name}{suffix}")


def compose(
    table: str,
    columns: Collection[str],
    *,
    owned: LiteralString = MARKED,
    scope: Scope | ShardScope | None = None,
) -> Mapping[str, bytes]:
    """
    Compose each statement for a table, in the form that the driver takes.

    Args:
        table: its name, perhaps with a schema: `sales.outbox`.
        columns: the columns that it has.
        owned: which rows a leader may write: `MARKED` or `IDENTIFIED`.
        scope: which rows a leader reads, of several clusters or shards.
    """
    parts: dict[str, sql.Composable] = {
        "table": _escaped(table),
        "archive": _escaped(table, suffix="_archive"),
        "parked": _escaped(table, suffix="_parked"),
        "staged": _escaped(table, suffix="_staged"),
        "series": _escaped(table, suffix="_series"),
        "identity": _escaped(table, suffix="_identity"),
        "pauses": _escaped(table, suffix="_pauses"),
        "channel": _escaped(channel_of(table)),
        "created_at": sql.SQL(_CREATED_AT),
    }
    for column, substitute in _SUBSTITUTES.items():
        parts[column] = (
            sql.Identifier("o", column) if column in columns else sql.SQL(substitute)
        )
    parts["fields"] = sql.SQL(_FIELDS).format(**parts)
    parts |= _sizes(parts, _HEADER_BYTES)
    parts["fits"] = sql.SQL(_FITS)
    parts["owned"] = sql.SQL(owned).format(**parts)
    parts["these"] = sql.SQL(_LISTED).format(**parts)
    mine = scope.readable if scope else "true"
    seen = scope.seen if isinstance(scope, ShardScope) else "true"
    parts["seen"] = sql.SQL(seen)
    parts["mine"] = sql.SQL(mine).format(table=parts["table"])
    left = scope.repairable if scope else "o.id <= %(position)s"
    parts["left"] = sql.SQL(left).format(table=parts["table"])
    parts["unpassed"] = sql.SQL("true")

    def composed(name: str, **changed: sql.Composable) -> bytes:
        return sql.SQL(queries()[name]).format(**parts | changed).as_bytes(None)

    others = {"unpassed": sql.SQL(_UNPASSED)}
    ids = {"fields": sql.SQL("o.id"), **_sizes(parts, _STORED_HEADER_BYTES)}
    statements = {name: composed(name) for name in queries()}
    statements |= {f"{name}_ids": composed(name, **ids) for name in _PAGES}
    if owned == IDENTIFIED:
        run = {"these": sql.SQL(_RUN).format(**parts)}
        statements |= {f"{name}_run": composed(name, **run) for name in _PURGES}
    else:
        identified = sql.SQL(IDENTIFIED).format(**parts)
        these = sql.SQL(_LISTED).format(owned=identified)
        anybody = {"owned": identified, "these": these}
        statements |= {f"{name}_any": composed(name, **anybody) for name in _UNMARKED}
    statements["mark_others"] = composed("mark", **others)
    statements["mark_others_ids"] = composed("mark", **others, **ids)
    return statements


def _sizes(
    parts: Mapping[str, sql.Composable], header_bytes: LiteralString
) -> dict[str, sql.Composable]:
    """Return the parts that limit the bytes of a page."""
    headers = {
        part: sql.SQL(header_bytes).format(column=sql.Identifier("o", column))
        for part, column in _HEADER_COLUMNS.items()
    }
    size = sql.SQL(_BYTES).format(**parts, **headers)
    return {"bytes": size, "bytes_before": sql.SQL(_BYTES_BEFORE).format(bytes=size)}


def _escaped(table: str, *, suffix: str = "") -> sql.Composable:
    """Quote a name for a statement in which a single % begins a parameter."""
    return sql.SQL(quoted_table(table, suffix=suffix).replace("%", "%%"))


def quoted_table(table: str, *, suffix: str = "") -> LiteralString:
    """Quote a table's name as text, with its schema when it has one."""
    return identifier(table, suffix=suffix).as_string(None)


def quoted(name: str) -> str:
    """Quote an SQL identifier, whatever characters it has."""
    return '"' + name.replace('"', '""') + '"'
