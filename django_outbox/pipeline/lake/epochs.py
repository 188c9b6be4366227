"""
The order of ids that began again, because a database was restored.

A restored database gives out ids once more that Kafka has seen already. The
setting `epochs` says when that happened, for each source. Messages created
since then come behind all messages created before, whatever their ids: each
epoch has a range of ranks of its own.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from .tables import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ..pipeline_settings import PipelineSettings

RANKS: Final = 1 << 56
"""Ranks of one epoch. No outbox gives out that many ids: a record with a higher one
was not sent by an outbox."""


def rank(settings: PipelineSettings, table: str = "") -> str:
    """
    Return the place of a record in the order of its key, as SQL: a BIGINT.

    It is the id itself, unless the source has epochs. The record needs `source`,
    `id` and `created_at`; without a creation time it belongs to the first epoch.

    Args:
        table: Alias of the record's table.
    """
    of = f"{table}." if table else ""
    epochs = [
        f" + IF({of}source = {literal(source)}"
        f" AND {of}created_at >= TIMESTAMP {literal(_in_full(moment))}, {RANKS}, 0)"
        for source, moments in settings.epochs.items()
        for moment in moments
    ]
    return f"{of}id{''.join(epochs)}"


def _in_full(moment: str) -> str:
    """Return a time with its seconds: Spark reads no offset behind the minutes."""
    return datetime.fromisoformat(moment).astimezone(UTC).isoformat()


def ranked(records: DataFrame, settings: PipelineSettings) -> DataFrame:
    """Add `rank` to records."""
    return records.withColumn("rank", F.expr(rank(settings)))
