"""A pipeline that is killed after each table, and one that goes on behind it."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from django_outbox.pipeline.config import PipelineSettings
from django_outbox.pipeline.running import run_once

from ..services import Topics
from .lakes import Contents, Sender

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]


def kill_after(table: str, settings: PipelineSettings) -> None:
    """Run the pipeline in a process that ends with `kill -9` at this point."""
    victim = subprocess.run(
        [
            *(sys.executable, "-m", "tests.pipeline.victim", settings.lake),
            *(settings.kafka["bootstrap.servers"], settings.topics[0], table),
        ],
        cwd=ROOT,
        start_new_session=True,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert victim.returncode == -signal.SIGKILL, victim.stderr


def test_kills_after_each_table_lose_and_repeat_nothing(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create(partitions=2)
    settings = PipelineSettings(
        lake=str(tmp_path / "lake"),
        kafka={"bootstrap.servers": topics.servers},
        topics=(topic,),
    )
    sender = Sender(topics.servers)
    sender.send(topic, 1, 2, 2, 5, 3, 3, key="a")
    sender.send(topic, 4, 6, 4, 7, key="b", partition=1)
    sender.send(topic, 8, 8, key=None)
    sender.send(topic, 9, value=None, key="c")
    checkpoints = Path(settings.lake, "_checkpoints")

    kill_after("bronze", settings)
    assert not (checkpoints / "ingest" / "commits" / "0").exists()
    for table in ("silver", "late", "latest"):
        kill_after(table, settings)
        assert not (checkpoints / "refine" / "commits" / "0").exists()
    sender.send(topic, 9, 10, key="c")
    run_once(spark, settings, stop=threading.Event())

    lake = Contents(spark, settings)
    bronze = lake("bronze", topic, "partition", "offset")
    assert len(bronze) == len(set(bronze)) == 15
    assert lake.ids("silver", topic) == [1, 2, 4, 5, 6, 7, 8, 9, 10]
    assert lake.ids("late", topic) == [3]
    assert lake("latest", topic, "key", "id", "is_deleted") == [
        (b"a", 5, False),
        (b"b", 7, False),
        (b"c", 10, False),
    ]
