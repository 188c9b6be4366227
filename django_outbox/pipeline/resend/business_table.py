"""
An existing table as messages: the state that later events build upon.

One statement reads the table, so all rows are of one moment, behind a
position of the outbox (`position.py`) up to which everything had been
decided. Each row becomes a message with the position as its id. So whoever
keeps the highest id of each key takes

- an event with a lower id for old: the snapshot has what it tells;
- an event with a higher id for news, even if the snapshot has it already:
  once the last one has come, the key is where the events have brought it.

There is no gap between the two, and nobody had to stop writing.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from ...exceptions import ConfigurationError
from ..lake.position import Position, Writer, find_position
from ..lake.records import BACKFILL
from .sending import producer_options, send
from .snapshot import Snapshot, count, examine, read

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from ..pipeline_settings import PipelineSettings

NAMESPACE: Final = uuid.UUID("8f0b6d0e-5d0c-5b0e-9a53-0d7a4c1e6b52")
"""Of the message ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a backfill has done, or would do."""

    source: str
    table: str
    topic: str
    position: int | None
    """Events with an id up to this one are in the snapshot; None: a dry run."""
    created_at: int | None
    """Microseconds since the epoch; None: a dry run."""
    records: int
    """Rows at the time when they were counted, just before they are sent."""


def messages(
    rows: DataFrame, snapshot: Snapshot, *, source: str, position: Position
) -> DataFrame:
    """
    Rows with the texts `key` and `value` as `send()` wants them.

    The message id is made of source, table, position and key: another run
    with the same position sends copies.
    """
    seed = f"{source}/{snapshot.table}/{position.id}/"
    headers = {
        "outbox-message-id": uuid5(F.concat(F.lit(seed), "key")),
        "outbox-id": F.lit(str(position.id)),
        "outbox-source": F.lit(source),
        "outbox-created-at": F.lit(str(position.microseconds)),
        BACKFILL: F.lit(snapshot.table),
    }
    return rows.select(
        F.lit(snapshot.to).alias("topic"),
        F.col("key").cast("binary").alias("key"),
        F.col("value").cast("binary").alias("value"),
        F.array(
            *(
                F.struct(F.lit(k).alias("key"), v.cast("binary").alias("value"))
                for k, v in headers.items()
            )
        ).alias("headers"),
    )


def uuid5(name: Column) -> Column:
    """Return what `uuid.uuid5(NAMESPACE, name)` does, as text."""
    digest = F.sha1(F.concat(F.lit(NAMESPACE.bytes), name.cast("binary")))
    variant = F.translate(F.substring(digest, 17, 1), "0123456789abcdef", "89ab" * 4)
    return F.concat_ws(
        "-",
        F.substring(digest, 1, 8),
        F.substring(digest, 9, 4),
        F.concat(F.lit("5"), F.substring(digest, 14, 3)),
        F.concat(variant, F.substring(digest, 18, 3)),
        F.substring(digest, 21, 12),
    )


def backfill(
    spark: SparkSession,
    settings: PipelineSettings,
    snapshot: Snapshot,
    *,
    timeout: float = 60.0,
    position: int | None = None,
    waiting: Callable[[list[Writer]], None] = lambda _: None,
) -> Outcome:
    """
    Send a table's rows, and return the position that they have.

    Args:
        timeout: Seconds to wait for open transactions.
        position: Of an earlier run, whose messages are sent again as copies.
        waiting: Hears before each pause of whom it waits for.

    Raises:
        ConfigurationError: a setting is missing, or the database does not
            know what was named, or several rows have the same key.
        DatabaseError: a transaction did not end in time; names it.
        DatabaseUnavailable: the database does not answer.
        KafkaError: not all rows were sent; start again.
    """
    _check(settings)
    text = examine(spark, settings, snapshot)
    records = count(spark, settings, text)
    found = find_position(spark, settings, timeout=timeout, waiting=waiting)
    if position is not None:
        if position > found.id:
            raise ConfigurationError(f"position: the outbox has come to {found.id}.")
        found = Position(id=position, microseconds=found.microseconds)
    rows = read(spark, settings, text)
    send(messages(rows, snapshot, source=settings.source, position=found), settings)
    return Outcome(
        source=settings.source,
        table=snapshot.table,
        topic=snapshot.to,
        position=found.id,
        created_at=found.microseconds,
        records=records,
    )


def preview(
    spark: SparkSession, settings: PipelineSettings, snapshot: Snapshot
) -> Outcome:
    """
    Count the rows; for the rest as `backfill()`, which sends them.

    Raises:
        ConfigurationError: as `backfill()`.
        DatabaseUnavailable: as `backfill()`.
    """
    _check(settings)
    text = examine(spark, settings, snapshot)
    return Outcome(
        source=settings.source,
        table=snapshot.table,
        topic=snapshot.to,
        position=None,
        created_at=None,
        records=count(spark, settings, text),
    )


def _check(settings: PipelineSettings) -> None:
    producer_options(settings)
    for name in ("database_url", "source"):
        if not getattr(settings, name):
            raise ConfigurationError(
                f"{name}: is missing. A backfill reads the outbox's database, and"
                " its messages are the outbox's (DATABASE_URL, OUTBOX_SOURCE)."
            )
