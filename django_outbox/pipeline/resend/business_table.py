"""
Backfill: the rows of an existing table become messages, as a first state.

One statement reads the table, so all rows belong to one moment. Before that, a
position of the outbox is found up to which every message is committed or
rolled back. Each row becomes a message with the position as its id. A consumer
that keeps the highest id of each key

- ignores events with lower ids: the snapshot includes their effect;
- applies events with higher ids, even if the snapshot includes some of them:
  after the last one, the key has the state that the events describe.

There is no gap between snapshot and events, and writers need not stop.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from ...exceptions import ConfigurationError
from ..lake.records import BACKFILL
from .position import OpenWriter, Position, find_position
from .sending import producer_options, send
from .snapshot import Snapshot, count, examine, read

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from ..pipeline_settings import PipelineSettings

NAMESPACE: Final = uuid.UUID("8f0b6d0e-5d0c-5b0e-9a53-0d7a4c1e6b52")
"""Namespace of the message ids (UUID version 5)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a backfill or of a dry run."""

    source: str
    table: str
    topic: str
    position: int | None
    """The snapshot includes all events up to this id; None for a dry run."""
    created_at: int | None
    """Microseconds since the epoch; None for a dry run."""
    records: int
    """Rows counted just before they were sent."""


def messages(
    rows: DataFrame, snapshot: Snapshot, *, source: str, position: Position
) -> DataFrame:
    """
    Turn rows with the texts `key` and `value` into Kafka records.

    The message id is derived from source, table, position and key, so another
    run with the same position sends duplicates.
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
    """Return `str(uuid.uuid5(NAMESPACE, name))` as a column."""
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
    waiting: Callable[[list[OpenWriter]], None] = lambda _: None,
    sending: Callable[[int], None] = lambda _: None,
) -> Outcome:
    """
    Send the rows of a table, and return the position that they carry.

    Args:
        timeout: Seconds to wait for open transactions.
        position: Position of an earlier run, to resend its messages as
            duplicates.
        waiting: Called before each pause with the transactions that are open.
        sending: Called with the position before the first row is sent.

    Raises:
        ConfigurationError: a setting is missing, or the database does not
            have the table or a column, or several rows have the same key.
        DatabaseError: a transaction did not end in time; names it.
        DatabaseUnavailable: the database cannot be reached.
        KafkaError: not all rows were sent; run it again with the position.
    """
    _check(settings)
    text = examine(spark, settings, snapshot)
    records = count(spark, settings, text)
    found = find_position(spark, settings, timeout=timeout, waiting=waiting)
    if position is not None:
        if position > found.id:
            raise ConfigurationError(
                f"position: {position} is above the last id of the outbox, {found.id}."
            )
        found = Position(id=position, microseconds=found.microseconds)
    rows = read(spark, settings, text)
    sending(found.id)
    send(
        messages(rows, snapshot, source=settings.source, position=found),
        settings,
        again=f"Run the same command with `--position {found.id}`: rows that were sent"
        " already are copies then.",
    )
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
    Count the rows and send nothing.

    Raises:
        ConfigurationError: as for `backfill()`.
        DatabaseUnavailable: as for `backfill()`.
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
                f"{name} is not set. A backfill reads the outbox's database and"
                " sends messages in its name (DATABASE_URL, OUTBOX_SOURCE)."
            )
