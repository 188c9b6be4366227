"""Names in Hive's metastore, and the changes of `latest`: how others read the lake."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from django_outbox.exceptions import ConfigurationError
from django_outbox.pipeline.lake.catalog import register
from django_outbox.pipeline.pipeline_settings import PipelineSettings

from ..machine import nightly
from ..processes import Process
from .lakes import NOW, FilledLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERY = """
import sys
from pathlib import Path
from django_outbox.pipeline.pipeline_settings import build, read_file
from django_outbox.pipeline.session import open_session

spark = open_session(build(read_file(Path(sys.argv[1]))))
for name in ("current", "history", "latest"):
    print(name, sorted(row["id"] for row in spark.table(f"outbox.{name}").collect()))
late = spark.table("outbox.history").where("is_late").collect()
print("late", [row["id"] for row in late])
"""


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ("a b", "'a b' is no name of a schema"),
        ("a.b.c", "'a.b.c' is no name of a schema"),
        ("outbox", "catalog is in memory and ends with the command"),
        ("spark_catalog.outbox", "catalog is in memory and ends with the command"),
    ],
)
def test_a_name_that_would_be_lost_is_refused(
    schema: str, problem: str, spark: SparkSession
) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        list(register(spark, PipelineSettings(lake="lake"), schema))


def config(folder: Path, lake: str) -> Path:
    """Write settings with a metastore of the test's own."""
    metastore = f"jdbc:derby:;databaseName={folder}/metastore;create=true"
    file = folder / f"{Path(lake).name}.toml"
    properties = {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.hadoop.javax.jdo.option.ConnectionURL": metastore,
    }
    lines = [f"{json.dumps(k)} = {json.dumps(v)}" for k, v in properties.items()]
    file.write_text("\n".join([f"lake = {json.dumps(lake)}", "[spark]", *lines]))
    return file


def run(folder: Path, *arguments: str, code: int = 0) -> Process:
    """Run Python to its end, which is this exit code."""
    command = (sys.executable, *arguments)
    with Process(arguments[0], command, os.environ, cwd=folder) as process:
        assert process.exit_code(300) == code, process.report()
    return process


@nightly
def test_another_process_reads_the_lake_by_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    lakes = [str(tmp_path / name) for name in ("one", "other")]
    for lake in lakes:
        schemas = {"orders": "a STRING"}
        settings = PipelineSettings(lake=lake, schemas=schemas, typed_tables=True)
        filled = FilledLake(spark, settings)
        filled.put(1, 3, 2, key="a")
        filled.put(4, key="b", length=None)
        filled.refine()
    one, other = (config(tmp_path, lake) for lake in lakes)
    name = ("-m", "django_outbox.pipeline", "register", "outbox", "--config")
    for _ in range(2):
        assert run(tmp_path, *name, str(one)).output == [
            *(f"outbox.{table}" for table in ("bronze", "silver", "late", "latest")),
            *("outbox.quarantine", "outbox.typed_orders"),
            *("outbox.current", "outbox.history"),
        ]
    refused = run(tmp_path, *name, str(other), code=2)
    assert "outbox.bronze is at" in refused.log[-1]
    later = PipelineSettings(lake=str(tmp_path / "later"))
    before = ("-m", "django_outbox.pipeline", "register", "later", "--config")
    run(tmp_path, *before, str(config(tmp_path, later.lake)))
    FilledLake(spark, later).put(1)
    assert FilledLake(spark, later).refine()
    assert run(tmp_path, "-c", QUERY, str(one)).output == [
        "current [3]",
        "history [1, 2, 3, 4]",
        "latest [3, 4]",
        "late [2]",
    ]


@nightly
def test_a_stream_follows_the_changes_of_latest(
    spark: SparkSession, tmp_path: Path
) -> None:
    settings = PipelineSettings(lake=str(tmp_path), change_data_feed=True)
    lake = FilledLake(spark, settings)
    for ids in ((1, 2), (3,)):
        lake.put(*ids, key="a")
        lake.refine()
    latest = settings.table_path("latest")
    changes = spark.readStream.format("delta").option("readChangeFeed", "true")
    query = (
        changes.option("startingVersion", 0)
        .load(latest)
        .writeStream.format("memory")
        .queryName("changes")
        .trigger(**NOW)
        .start()
    )
    query.awaitTermination()
    rows = spark.table("changes").orderBy("_commit_version", "id").collect()
    assert [(row["_change_type"], row["id"]) for row in rows] == [
        ("insert", 2),
        ("update_preimage", 2),
        ("update_postimage", 3),
    ]
