"""Pipelines killed behind each of their tables, beside one never killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from django_outbox.pipeline.lake import tables
from django_outbox.pipeline.pipeline_run import run_once
from django_outbox.pipeline.pipeline_settings import PipelineSettings

from ..machine import nightly
from ..services import Topics
from .lakes import Contents, Sender

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]

POINTS = ["bronze", "silver", "late", "latest"]


@pytest.fixture(scope="module")
def killed(
    topics: Topics, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], PipelineSettings]:
    """Give the pipeline that was killed at a point, or never; all were, at once."""
    folder = tmp_path_factory.mktemp("killed")
    topic = topics.create(partitions=2)
    sender = Sender(topics.servers)
    sender.send_of_every_kind(topic)
    kill(folder, topics.servers, topic)
    sender.send(topic, 13, 10, 13, key="a")
    sender.send(topic, 11, 14, key="b", partition=1)
    kill(folder, topics.servers, topic)
    return lambda point: PipelineSettings(
        lake=str(folder / point),
        kafka={"bootstrap.servers": topics.servers},
        topics=(topic,),
    )


def kill(folder: Path, servers: str, topic: str) -> None:
    """Let the pipelines go on until they are killed at their points."""
    victim = subprocess.run(
        [
            *(sys.executable, "-m", "tests.pipeline.victim"),
            *(str(folder), servers, topic, *POINTS),
        ],
        cwd=ROOT,
        start_new_session=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert victim.returncode == -signal.SIGKILL, victim.stderr


@pytest.fixture(scope="module")
def unharmed(
    spark: SparkSession, killed: Callable[[str], PipelineSettings]
) -> dict[str, list[str]]:
    """All rows of the tables of a pipeline that was never killed."""
    settings = killed("never")
    run_once(spark, settings, stop=threading.Event())
    lake, (topic,) = Contents(spark, settings), settings.topics
    assert lake.count("bronze") == 19
    assert lake.ids("silver", topic) == [1, 2, 4, 5, 6, 7, 8, 9, 11, 13, 14]
    assert lake.ids("late", topic) == [3, 10]
    assert lake("latest", topic, "key", "id", "is_deleted") == [
        (b"a", 13, False),
        (b"b", 14, False),
        (b"c", 9, True),
    ]
    assert lake.count("quarantine") == 1
    return all_rows(lake)


def all_rows(lake: Contents) -> dict[str, list[str]]:
    return {table: lake.rows(table) for table in tables.SCHEMAS}


@nightly
@pytest.mark.parametrize("point", POINTS)
def test_kills_after_each_table_change_no_table(
    point: str,
    spark: SparkSession,
    killed: Callable[[str], PipelineSettings],
    unharmed: dict[str, list[str]],
) -> None:
    settings = killed(point)
    query, batch = ("ingest", 1) if point == "bronze" else ("refine", 0)
    checkpoint = Path(settings.checkpoint(query))
    assert checkpoint.joinpath("offsets", str(batch)).exists()
    assert not checkpoint.joinpath("commits", str(batch)).exists()
    assert not tables.read(spark, settings, point).isEmpty()

    run_once(spark, settings, stop=threading.Event())
    assert all_rows(Contents(spark, settings)) == unharmed
