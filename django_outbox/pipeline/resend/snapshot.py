"""
A table at one moment: one statement reads it, each row with a key and a value.

`backfill.py` sends the rows. The database itself makes keys and values, so
that types need no translation; another shape is a view's business.
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
WHERE indrelid = '{table}'::regclass AND indisprimary"""

# With the asterisk it is the row, even if a column is called `t`, too.
_ALL: Final = "to_json(t.*)"
_CHOSEN: Final = "(SELECT to_json(r.*) FROM (SELECT {columns}) AS r)"
_ROWS: Final = "SELECT {key} AS key, {value}::text AS value FROM {table} AS t"
_COUNTS: Final = "SELECT count(*) AS n, count(DISTINCT key) AS keys FROM ({rows}) AS r"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What to read, and where to send it."""

    table: str
    """Name of the table or view, with its schema or without."""
    to: str
    """The topic."""
    key: tuple[str, ...] = ()
    """Columns whose texts, with colons between them, are the message's key;
    empty = the primary key."""
    columns: tuple[str, ...] = ()
    """What the value has; empty = all columns."""
    where: str = ""
    """Condition in the database's SQL; the table is called `t`."""


def statement(snapshot: Snapshot, key: Sequence[str]) -> str:
    """
    Return the query: columns `key` and `value`, both text.

    Raises:
        ConfigurationError: a name is no plain name.
    """
    chosen = ", ".join(f"t.{_quoted(name)}" for name in snapshot.columns)
    text = _ROWS.format(
        key=" || ':' || ".join(f"t.{_quoted(name)}::text" for name in key),
        value=_CHOSEN.format(columns=chosen) if chosen else _ALL,
        table=_table(snapshot),
    )
    # Behind a comment at its end the bracket would be lost.
    return f"{text} WHERE (\n{snapshot.where}\n)" if snapshot.where else text


def examine(spark: SparkSession, settings: PipelineSettings, snapshot: Snapshot) -> str:
    """
    Return the statement, which the database has understood.

    Raises:
        ConfigurationError: it does not know the table, a column or the
            condition; or the table has no primary key and no key is chosen.
        DatabaseUnavailable: it does not answer.
    """
    key = snapshot.key
    if not key:
        asked = _PRIMARY_KEY.format(table=_table(snapshot))
        with jdbc.explained(f"table: {snapshot.table!r}"):
            found = jdbc.query(spark, settings.database_url, asked).collect()
        key = tuple(row["name"] for row in sorted(found, key=lambda row: row["nth"]))
    if not key:
        raise ConfigurationError(
            f"table: {snapshot.table!r} has no primary key; name a column (--key)."
        )
    text = statement(snapshot, key)
    with jdbc.explained(f"table: {snapshot.table!r}, its columns or the condition"):
        assert read(spark, settings, text).schema
    return text


def read(spark: SparkSession, settings: PipelineSettings, text: str) -> DataFrame:
    """The rows of a snapshot's statement, as they are when a task reads them."""
    # Times in JSON are told in the session's time zone.
    zone = "SET TIME ZONE 'UTC'"
    return jdbc.query(spark, settings.database_url, text, sessionInitStatement=zone)


def count(spark: SparkSession, settings: PipelineSettings, text: str) -> int:
    """
    Count the rows of a snapshot's statement.

    Raises:
        ConfigurationError: some have the same key, or none.
        DatabaseUnavailable: the database does not answer.
    """
    with jdbc.explained("the table's rows"):
        counts = _COUNTS.format(rows=text)
        (row,) = jdbc.query(spark, settings.database_url, counts).collect()
    if row["keys"] < row["n"]:
        raise ConfigurationError(
            f"key: {row['n']} rows have {row['keys']} keys; in a topic each key has"
            " one state, and none is null. Name other columns (--key)."
        )
    return int(row["n"])


def _table(snapshot: Snapshot) -> str:
    return ".".join(_quoted(part) for part in snapshot.table.split(".", 1))


def _quoted(name: str) -> str:
    if not _NAME.match(name):
        raise ConfigurationError(f"{name!r} must be a plain SQL name.")
    return f'"{name}"'
