"""
What operators lose, and how the lake survives it: a checkpoint, and a topic.

`lose_checkpoints()` deletes the checkpoints, so that everything is read twice.
`recreate_topic()` deletes a topic and creates it again: the pipeline refuses to
skip its first records, `reset` reads them.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka.admin import AdminClient

from django_outbox.exceptions import TopicRecreated
from django_outbox.pipeline.audit.comparison import audit
from django_outbox.pipeline.lake import tables
from django_outbox.pipeline.lake.topic_reset import reset
from django_outbox.pipeline.pipeline_run import run_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from django_outbox.pipeline.pipeline_settings import PipelineSettings


class Loss(NamedTuple):
    """What was seen after a loss, and whether the lake is right again."""

    seen: str
    is_survived: bool


def lose_checkpoints(spark: SparkSession, settings: PipelineSettings) -> Loss:
    """Delete the checkpoints and run: everything is read again, and kept once."""
    before = {table: _count(spark, settings, table) for table in tables.SCHEMAS}
    shutil.rmtree(settings.checkpoint(""))
    run_once(spark, settings, stop=threading.Event())
    after = {table: _count(spark, settings, table) for table in tables.SCHEMAS}
    read_again = after.pop("bronze") - before.pop("bronze")
    return Loss(f"{read_again:,} read again", read_again > 0 and after == before)


def recreate_topic(
    spark: SparkSession, settings: PipelineSettings, send: Callable[[], None]
) -> Loss:
    """
    Delete the topic, let `send` create and fill it, then run, reset and run.

    Args:
        settings: Of a pipeline with one topic, which has been read.
    """
    (topic,) = settings.topics
    servers = settings.kafka["bootstrap.servers"]
    admin = AdminClient({"bootstrap.servers": servers})
    admin.delete_topics([topic])[topic].result(60)
    while topic in admin.list_topics(timeout=60).topics:
        pass
    send()
    try:
        run_once(spark, settings, stop=threading.Event())
    except TopicRecreated:
        reset(spark, settings, topic)
        run_once(spark, settings, stop=threading.Event())
        report = audit(spark, settings)
        is_whole = report.total("messages") > 0 and not (
            report.total("lost") or report.total("lake_lost") or report.total("behind")
        )
        return Loss("refused, then reset", is_whole)
    return Loss("not noticed", is_survived=False)


def _count(spark: SparkSession, settings: PipelineSettings, table: str) -> int:
    return tables.read(spark, settings, table).count()
