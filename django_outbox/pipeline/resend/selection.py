"""
Which records of the lake are meant: by topic, time, key, id or SQL.

`replay.py` sends them. Pure column expressions.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import functions as F

from ...exceptions import ConfigurationError
from ..lake.tables import RECORD_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which records to send: those that all of this is true of."""

    topics: tuple[str, ...] = ()
    """From one of these topics; empty = from any."""
    topic_pattern: str = ""
    """From a topic that fits this Java regular expression; empty = from any."""
    since: datetime | None = None
    """Created at this time or later."""
    until: datetime | None = None
    """Created before this time."""
    keys: tuple[str, ...] = ()
    """With one of these keys; empty = with any, or without one."""
    ids: tuple[tuple[int, int], ...] = ()
    """With an id in one of these ranges, both ends included; empty = any."""
    where: str = ""
    """What else is true: a condition in SQL on the columns of `silver`."""
    includes_late: bool = False
    """Whether what came out of order is sent too, in its place."""


def select(records: DataFrame, selection: Selection) -> DataFrame:
    """
    The records that are meant; columns stay as they are.

    A record that does not say when it was created counts from the time that
    Kafka has for it.

    Raises:
        ConfigurationError: the condition is no SQL, or no condition.
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
        is_meant = F.lit(False)  # noqa: FBT003 - the literal itself
        for first, last in selection.ids:
            is_meant = is_meant | F.col("id").between(first, last)
        records = records.where(is_meant)
    if not selection.where:
        return records
    try:
        records = records.where(selection.where)
        # A remote session looks at it only now.
        assert records.schema
    except (AnalysisException, ParseException) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigurationError(
            f"where: {selection.where!r} is no condition on the columns of silver"
            f" ({', '.join(RECORD_COLUMNS)}): {reason}"
        ) from error
    return records


def fits(column: str, pattern: str) -> Column:
    """Whether a whole name fits a Java regular expression."""
    return F.col(column).rlike(f"^({pattern})$")
