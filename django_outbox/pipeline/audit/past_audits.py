"""
The table `audits` of the lake: what earlier audits found, and where they ended.

`audit --since last` begins where the last one ended, so that each audit reads
only what is new.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from ..lake import tables
from ..lake.conflicts import retry_conflicts
from .printout import summary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..pipeline_settings import PipelineSettings
    from .report import Compared, Report
    from .verdict import Verdict

OVERLAP: Final = timedelta(hours=1)
"""
What the next audit judges again.

A message that was created in that time may not have been committed yet, or not
have arrived everywhere.
"""

_SAME: Final = ("topics", "databases", "tables")
"""What an audit must have compared, so that the next one goes on behind it."""

_LOOKED_AT: Final = 1_000
"""Audits among which it looks for such a one."""

_TABLE: Final = "audits"

_SCHEMA: Final = (
    "at TIMESTAMP, since TIMESTAMP, until TIMESTAMP, verdict STRING, summary STRING"
)


def next_start(
    spark: SparkSession, settings: PipelineSettings, compared: Compared
) -> datetime | None:
    """
    Return the end of the last audit that compared the same; None before the first.

    One of other topics, or without the database, has not judged what came meanwhile.
    """
    _create(spark, settings)
    wanted = {name: list(getattr(compared, name)) for name in _SAME}
    rows = tables.read(spark, settings, _TABLE).orderBy(F.desc("at"))
    ends = rows.select("summary", F.unix_seconds("until").alias("until"))
    for row in ends.limit(_LOOKED_AT).collect():
        found = json.loads(row["summary"])["compared"]
        if {name: found[name] for name in _SAME} == wanted:
            return datetime.fromtimestamp(row["until"], UTC)
    return None


def remember(
    spark: SparkSession,
    settings: PipelineSettings,
    report: Report,
    verdict: Verdict,
    *,
    began: datetime,
) -> None:
    """
    Append an audit to the table.

    Its end, `until`, is an hour before it began, or when its oldest message was
    created that had not arrived everywhere. `summary` is JSON: the verdict, the
    promises, the span, what was compared, and the counts.
    """
    _create(spark, settings)
    until = min(began - OVERLAP, report.oldest_in_transit or began)
    text = json.dumps({**summary(report, verdict), "total": report.whole().as_row()})
    row = (began, report.compared.since, until, verdict.state, text)
    frame = spark.createDataFrame([row], _SCHEMA)
    frame.write.format("delta").mode("append").save(settings.table_path(_TABLE))


def _create(spark: SparkSession, settings: PipelineSettings) -> None:
    table = tables.name(settings, _TABLE)
    statement = f"CREATE TABLE IF NOT EXISTS {table} ({_SCHEMA}) USING delta"
    retry_conflicts(partial(spark.sql, statement))
