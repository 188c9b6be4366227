"""
Starts refine: the stream from bronze to silver, late, quarantine and latest.

Each record is compared with the high-water mark of its key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ...exceptions import ConfigurationError
from ..payloads.decoder import check
from ..payloads.required_packages import require_packages
from . import reader
from .batch_writer import BatchCounts, BatchWriter
from .records import check_columns
from .restored_checkpoint import REFINED, refuse_restored
from .typed_tables import check_names

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from ..pipeline_settings import PipelineSettings

NAME: Final = reader.NAME
"""Name of the query, in progress and metrics."""

BATCH_BYTES: Final = "256m"
"""Size of the files that one batch reads; in memory they are a few times larger."""


def _options(spark: SparkSession, settings: PipelineSettings) -> dict[str, Any]:
    """Return how much of bronze one batch reads, and where the first one begins."""
    limits = {
        "maxFilesPerTrigger": settings.batch_files,
        "maxBytesPerTrigger": BATCH_BYTES,
    }
    if reader.last_batch(spark, settings) is None:
        version = reader.rebuilt_from(spark, settings)
        if version is not None:
            return {**limits, "startingVersion": version}
    return limits


def _check_unwrapping(settings: PipelineSettings) -> None:
    try:
        require_packages("pyarrow", "pandas", extra="registry")
        if settings.payload_keys:
            require_packages("cryptography", extra="encryption")
    except ConfigurationError as error:
        raise ConfigurationError(f"unwrap: {error}") from error


def start_refine(
    spark: SparkSession,
    settings: PipelineSettings,
    *,
    trigger: Mapping[str, Any],
    reached: Callable[[str], None] = lambda _: None,
    counted: Callable[[int, BatchCounts], None] = lambda *_: None,
) -> StreamingQuery:
    """
    Start the stream from bronze to the other tables; all must exist.

    Without a checkpoint it reads the files of bronze by age, which must still be
    the order of their rows, or begins where a rebuild has ended.

    Raises:
        ConfigurationError: a schema is invalid, an extra is not installed, or the
            checkpoint was put back from a copy.
    """
    check(settings.schemas)
    check_columns(settings.schemas)
    check_names(settings)
    if settings.unwrap:
        _check_unwrapping(settings)
    refuse_restored(spark, settings, NAME, REFINED)
    return (
        spark.readStream.format("delta")
        .options(**_options(spark, settings))
        # Maintenance deletes rows of bronze only after they have been read.
        .option("skipChangeCommits", "true")
        .load(settings.table_path("bronze"))
        .writeStream.queryName(NAME)
        .foreachBatch(BatchWriter(settings, reached=reached, counted=counted))
        .option("checkpointLocation", settings.checkpoint(NAME))
        .trigger(**trigger)
        .start()
    )
