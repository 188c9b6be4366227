"""Checkpoints that were put back from a copy: refused until they have a new id."""

from __future__ import annotations

import re
import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from django_outbox.exceptions import ConfigurationError
from django_outbox.pipeline.lake import tables
from django_outbox.pipeline.pipeline_run import run_once
from django_outbox.pipeline.pipeline_settings import PipelineSettings

from ..services import Topics
from .lakes import FilledLake, Sender

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Backup:
    """A copy of a checkpoint."""

    def __init__(self, settings: PipelineSettings, query: str) -> None:
        self._checkpoint = Path(settings.checkpoint(query))
        self._copy = Path(f"{settings.lake}-{query}-copy")
        shutil.copytree(self._checkpoint, self._copy)

    def restore(self) -> None:
        shutil.rmtree(self._checkpoint)
        shutil.copytree(self._copy, self._checkpoint)

    def rename_as_told(self, error: ConfigurationError) -> None:
        """Give the checkpoint the id that the error names."""
        told = re.search(r'{"id": "[-0-9a-f]{36}"}', str(error))
        assert told
        (self._checkpoint / "metadata").write_text(told[0])
        (self._checkpoint / ".metadata.crc").unlink(missing_ok=True)


def test_refine_takes_a_restored_checkpoint_with_a_new_id_only(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = FilledLake(spark, PipelineSettings(lake=str(tmp_path / "lake")))
    lake.put(1)
    lake.refine()
    backup = Backup(lake.settings, "refine")
    lake.put(2)
    lake.refine()
    backup.restore()
    lake.put(3)
    expected = "ends with batch 0, and silver has batch 1"
    with pytest.raises(ConfigurationError, match=expected) as caught:
        lake.refine()

    backup.rename_as_told(caught.value)
    (counts,) = lake.refine()
    assert (counts.rows, counts.copies) == (2, 1)
    assert lake.ids("silver") == [1, 2, 3]
    assert lake.ids("late") == []
    assert lake.ids("latest") == [3]
    lake.put(4)
    lake.refine()
    assert lake.ids("silver") == [1, 2, 3, 4]


def test_ingest_takes_a_restored_checkpoint_with_a_new_id_only(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create()
    settings = PipelineSettings(
        lake=str(tmp_path / "lake"),
        kafka={"bootstrap.servers": topics.servers},
        topics=(topic,),
    )
    sender = Sender(topics.servers)

    def ingest() -> None:
        run_once(spark, settings, stop=threading.Event(), steps=("ingest",))

    sender.send(topic, 1)
    ingest()
    backup = Backup(settings, "ingest")
    sender.send(topic, 2)
    ingest()
    backup.restore()
    sender.send(topic, 3)
    expected = "ends with batch 0, and bronze has batch 1"
    with pytest.raises(ConfigurationError, match=expected) as caught:
        ingest()

    backup.rename_as_told(caught.value)
    ingest()
    rows = tables.read(spark, settings, "bronze").collect()
    assert sorted(row["offset"] for row in rows) == [0, 1, 1, 2]
