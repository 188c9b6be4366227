"""
Selects records of the lake: by topic, time, key, id or SQL.

Everything here is a pure column expression.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import functions as F

from ...exceptions import ConfigurationError
from ...wording import first_line
from ..lake.records import fits
from ..lake.tables import RECORD_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Conditions for records; a record must meet all of them."""

    topics: tuple[str, ...] = ()
    """Topics; empty = all."""
    topic_pattern: str = ""
    """Java regular expression for the whole topic name; empty = all."""
    since: datetime | None = None
    """Created at this time or later."""
    until: datetime | None = None
    """Created before this time."""
    keys: tuple[str, ...] = ()
    """Keys; empty = all, including records without a key."""
    ids: tuple[tuple[int, int], ...] = ()
    """Ranges of ids, both ends included; empty = all."""
    where: str = ""
    """SQL condition on the columns of `silver`; empty = none."""
    includes_late: bool = False
    """Whether to include records that arrived out of order, sorted by id."""


def select(records: DataFrame, selection: Selection) -> DataFrame:
    """
    Return the selected records, with all columns.

    A record without a creation time counts with its Kafka timestamp.

    Raises:
        ConfigurationError: `where` is not a valid condition.
    """
    created = F.coalesce("created_at", "timestamp")
    if selection.topics:
        records = records.where(F.col("topic").isin(*selection.topics))
    if selection.topic_pattern:
        records = records.where(fits("topic", selection.topic_pattern))
    if selection.since is not None:
        records = records.where(created >= F.lit(selection.since))
    if selection.until is not None:
        records = records.where(created < F.lit(selection.until))
    if selection.keys:
        keys = [F.lit(key.encode()) for key in selection.keys]
        records = records.where(F.col("key").isin(*keys))
    if selection.ids:
        is_selected = F.lit(False)  # noqa: FBT003 - the literal itself
        for first, last in selection.ids:
            is_selected = is_selected | F.col("id").between(first, last)
        records = records.where(is_selected)
    if not selection.where:
        return records
    try:
        records = records.where(selection.where)
        # A remote session analyzes the condition only when it needs the schema.
        assert records.schema
    except (AnalysisException, ParseException) as error:
        reason = first_line(error)
        raise ConfigurationError(
            f"where: {selection.where!r} must be an SQL condition on the columns of"
            f" silver ({', '.join(RECORD_COLUMNS)}): {reason}"
        ) from error
    return records
