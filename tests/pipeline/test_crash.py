"""Pipelines that are killed behind each table, and go on where the tables are."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from django_outbox.pipeline.config import PipelineSettings
from django_outbox.pipeline.running import run_once

from ..services import Topics
from .lakes import Contents, Sender

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def killed(
    topics: Topics, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], PipelineSettings]:
    """Give the pipeline that was killed at a point; all were, at once."""
    folder = tmp_path_factory.mktemp("killed")
    topic = topics.create(partitions=2)
    sender = Sender(topics.servers)
    sender.send(topic, 1, 2, 2, 5, 3, 3, key="a")
    sender.send(topic, 4, 6, 4, 7, key="b", partition=1)
    sender.send(topic, 8, 8, key=None)
    sender.send(topic, 9, value=None, key="c")
    victim = subprocess.run(
        [
            *(sys.executable, "-m", "tests.pipeline.victim"),
            *(str(folder), topics.servers, topic),
        ],
        cwd=ROOT,
        start_new_session=True,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert victim.returncode == -signal.SIGKILL, victim.stderr
    return lambda point: PipelineSettings(
        lake=str(folder / point),
        kafka={"bootstrap.servers": topics.servers},
        topics=(topic,),
    )


@pytest.mark.parametrize("point", ["bronze", "silver", "late", "latest"])
def test_a_kill_after_each_table_loses_and_repeats_nothing(
    point: str, spark: SparkSession, killed: Callable[[str], PipelineSettings]
) -> None:
    settings = killed(point)
    query = "ingest" if point == "bronze" else "refine"
    assert not Path(settings.checkpoint(query), "commits", "0").exists()
    assert Contents(spark, settings).count(point) > 0

    parts = ["ingest", "refine"] if point == "bronze" else ["refine"]
    run_once(spark, settings, stop=threading.Event(), parts=parts)
    lake, (topic,) = Contents(spark, settings), settings.topics
    bronze = lake("bronze", topic, "partition", "offset")
    assert len(bronze) == len(set(bronze)) == 13
    assert lake.ids("silver", topic) == [1, 2, 4, 5, 6, 7, 8, 9]
    assert lake.ids("late", topic) == [3]
    assert lake("latest", topic, "key", "id", "is_deleted") == [
        (b"a", 5, False),
        (b"b", 7, False),
        (b"c", 9, True),
    ]
