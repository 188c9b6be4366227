"""
Refuses a checkpoint that is older than the tables: it was put back from a copy.

A table's log has the number of the last batch of each checkpoint that appended to
it, and Delta skips an append whose number is not above that one. A checkpoint from
a copy gives the same numbers to other rows, so these rows would be skipped. With a
new id it is another checkpoint to Delta, and nothing is skipped.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from ...exceptions import ConfigurationError
from . import reader, tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Row, SparkSession

    from ..pipeline_settings import PipelineSettings

MAX_SEARCHED_COMMITS: Final = 100
"""Commits of each table that are searched for the last batch. Maintenance adds a few
each night, even if no batch writes."""

REFINED: Final = ("silver", "late", "quarantine")
"""Tables with a commit for each batch of refine that had rows for them."""


def note(run: str, number: int) -> str:
    """Return what refine notes at a commit (`userMetadata`): whose batch, and which."""
    return f"{run} {number}"


def refuse_restored(
    spark: SparkSession,
    settings: PipelineSettings,
    checkpoint: str,
    written: Sequence[str],
) -> None:
    """
    Check that no table has a batch which the checkpoint has not planned yet.

    Args:
        checkpoint: Its name.
        written: The tables that its query appends to.

    Raises:
        ConfigurationError: one has; says how the checkpoint gets a new id.
    """
    planned = reader.last_batch(spark, settings, checkpoint, log="offsets")
    if planned is None:
        return
    run = reader.run_id(spark, settings, checkpoint)
    for table in written:
        last = _last_written(spark, settings, table, run)
        if last > planned:
            new = json.dumps({"id": str(uuid4())})
            raise ConfigurationError(
                f"{settings.checkpoint(checkpoint)} was put back from a copy: it ends"
                f" with batch {planned}, and {table} has batch {last}. Delta would"
                f" skip the rows of its next batches. Write {new} to its file"
                " `metadata`, and delete `.metadata.crc` if it is there. Rows that"
                " are then read twice count as copies."
            )


def _last_written(
    spark: SparkSession, settings: PipelineSettings, table: str, run: str
) -> int:
    """Return the last batch of a checkpoint in a table; -1 if there is none."""
    history = spark.sql(
        f"DESCRIBE HISTORY {tables.name(settings, table)} LIMIT {MAX_SEARCHED_COMMITS}"
    )
    commits = history.select("operationParameters", "userMetadata").collect()
    return max((_batch_of(commit, run) for commit in commits), default=-1)


def _batch_of(commit: Row, run: str) -> int:
    """Return the number of the batch that a commit wrote; -1 if it is another's."""
    # Spark's own sink has these two parameters; refine's appends have the note.
    parameters = commit["operationParameters"] or {}
    writer, number = (
        str(parameters.get(name) or "").strip('"') for name in ("queryId", "epochId")
    )
    if not writer:
        writer, _, number = (commit["userMetadata"] or "").rpartition(" ")
    return int(number) if writer == run else -1
