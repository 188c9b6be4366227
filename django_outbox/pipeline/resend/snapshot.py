"""
Reads a table at one moment, with one statement: each row has a key and a value.

The database formats keys and values itself, so types need no conversion. For
values of another shape, read from a view.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ...exceptions import ConfigurationError
from ..audit import jdbc

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ..pipeline_settings import PipelineSettings

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}\Z")

_PRIMARY_KEY: Final = """\
SELECT attname::text AS name, nth
FROM pg_index CROSS JOIN LATERAL unnest(indkey) WITH ORDINALITY AS part (number, nth)
JOIN pg_attribute ON attrelid = indrelid AND attnum = number
WHERE indrelid = '{table}'::regclass AND indisprimary AND nth <= indnkeyatts"""

# The asterisk selects the row even if a column is named `t`.
_ALL: Final = "to_json(t.*)"
_CHOSEN: Final = "(SELECT to_json(r.*) FROM (SELECT {columns}) AS r)"
_ROWS: Final = "SELECT {key} AS key, {value}::text AS value FROM {table} AS t"
_COUNTS: Final = "SELECT count(*) AS n, count(DISTINCT key) AS keys FROM ({rows}) AS r"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What to read, and where to send it."""

    table: str
    """Name of the table or view, optionally with its schema."""
    to: str
    """Target topic."""
    key: tuple[str, ...] = ()
    """Columns of the message key, joined as text with colons; empty = the primary
    key."""
    columns: tuple[str, ...] = ()
    """Columns of the message value; empty = all."""
    where: str = ""
    """SQL condition; the table's alias is `t`."""


def statement(snapshot: Snapshot, key: Sequence[str]) -> str:
    """
    Return the query: columns `key` and `value`, both text.

    Raises:
        ConfigurationError: a name is not a plain SQL name.
    """
    chosen = ", ".join(f"t.{_quoted(name)}" for name in snapshot.columns)
    text = _ROWS.format(
        key=" || ':' || ".join(f"t.{_quoted(name)}::text" for name in key),
        value=_CHOSEN.format(columns=chosen) if chosen else _ALL,
        table=_table(snapshot),
    )
    # The condition may end with a comment: the bracket needs its own line.
    return f"{text} WHERE (\n{snapshot.where}\n)" if snapshot.where else text


def examine(spark: SparkSession, settings: PipelineSettings, snapshot: Snapshot) -> str:
    """
    Return the statement, after the database has parsed it.

    Raises:
        ConfigurationError: the table, a column or the condition is invalid; or
            the table has no primary key and no key is chosen.
        DatabaseUnavailable: the database cannot be reached.
    """
    key = snapshot.key
    if not key:
        asked = _PRIMARY_KEY.format(table=_table(snapshot))
        with jdbc.explained(f"table: {snapshot.table!r}"):
            found = jdbc.query(spark, settings.database_url, asked).collect()
        key = tuple(row["name"] for row in sorted(found, key=lambda row: row["nth"]))
    if not key:
        raise ConfigurationError(
            f"table: {snapshot.table!r} has no primary key; choose a column (--key)."
        )
    text = statement(snapshot, key)
    with jdbc.explained(f"table: {snapshot.table!r}, its columns or the condition"):
        assert read(spark, settings, text).schema
    return text


def read(spark: SparkSession, settings: PipelineSettings, text: str) -> DataFrame:
    """Return the rows of a snapshot's statement; Spark runs it when needed."""
    # JSON has times in the session's time zone.
    zone = "SET TIME ZONE 'UTC'"
    return jdbc.query(spark, settings.database_url, text, sessionInitStatement=zone)


def count(spark: SparkSession, settings: PipelineSettings, text: str) -> int:
    """
    Count the rows of a snapshot's statement.

    Raises:
        ConfigurationError: several rows have the same key, or a key is null.
        DatabaseUnavailable: the database cannot be reached.
    """
    with jdbc.explained("the table's rows"):
        counts = _COUNTS.format(rows=text)
        (row,) = jdbc.query(spark, settings.database_url, counts).collect()
    if row["keys"] < row["n"]:
        raise ConfigurationError(
            f"key: {row['n']} rows have {row['keys']} keys. Keys must be unique and"
            " not null; choose other columns (--key)."
        )
    return int(row["n"])


def _table(snapshot: Snapshot) -> str:
    return ".".join(_quoted(part) for part in snapshot.table.split(".", 1))


def _quoted(name: str) -> str:
    if not _NAME.match(name):
        raise ConfigurationError(f"{name!r} must be a plain SQL name.")
    return f'"{name}"'
