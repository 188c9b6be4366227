"""The same commands elsewhere: on a cluster of two workers, through Connect."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import ZipFile

import pytest

from django_outbox.pipeline.lake import tables
from django_outbox.pipeline.payloads.declared import Encoded
from django_outbox.pipeline.pipeline_run import run_once
from django_outbox.pipeline.pipeline_settings import PipelineSettings

from ..machine import nightly
from ..services import Topics
from .clusters import (
    PROPERTIES,
    ROOT,
    connect_server,
    environment,
    standalone,
    submit,
)
from .lakes import SPARK, Contents, Sender

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SQL = {
    name: value for name, value in SPARK.items() if ".sql." in name or ".delta." in name
}

SCHEMA = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "a", "type": "int"}],
}
"""Workers decode Avro by it, and find that no value fits."""

MAIN = "import sys; from django_outbox.pipeline.__main__ import main"


@dataclass
class Expected:
    """A topic, and what this process's own Spark makes of it."""

    spark: SparkSession
    servers: str
    topic: str
    rows: dict[str, list[str]]

    def settings(self, lake: Path) -> PipelineSettings:
        return PipelineSettings(
            lake=str(lake),
            kafka={"bootstrap.servers": self.servers},
            topics=(self.topic,),
            batch_records=8,
            schemas={
                self.topic: Encoded(format="avro", schema=json.dumps(SCHEMA).encode())
            },
        )

    def config(self, lake: Path) -> Path:
        """Write the same as a file."""
        file = lake.with_suffix(".toml")
        file.write_text(
            f"lake = {json.dumps(str(lake))}\n"
            f"topics = {json.dumps([self.topic])}\n"
            f"batch_records = 8\n"
            f'[kafka]\n"bootstrap.servers" = {json.dumps(self.servers)}\n'
            f'[schemas.{self.topic}]\nformat = "avro"\n'
            f"schema = {json.dumps(json.dumps(SCHEMA))}\n"
        )
        return file

    def compare(self, lake: Path) -> None:
        assert all_rows(self.spark, self.settings(lake)) == self.rows


def all_rows(spark: SparkSession, settings: PipelineSettings) -> dict[str, list[str]]:
    lake = Contents(spark, settings)
    return {table: lake.rows(table) for table in tables.SCHEMAS}


@pytest.fixture(scope="module")
def expected(
    spark: SparkSession, topics: Topics, tmp_path_factory: pytest.TempPathFactory
) -> Expected:
    topic = topics.create(partitions=2)
    sender = Sender(topics.servers)
    sender.send_of_every_kind(topic)
    of_all = Expected(spark, topics.servers, topic, {})
    settings = of_all.settings(tmp_path_factory.mktemp("local") / "lake")
    run_once(spark, settings, stop=threading.Event())
    of_all.rows = all_rows(spark, settings)
    counts = {table: len(rows) for table, rows in of_all.rows.items()}
    assert counts == {
        "bronze": 14,
        "silver": 8,
        "late": 1,
        "latest": 3,
        # One that no outbox has sent, and all but the tombstone of those in silver.
        "quarantine": 8,
    }
    return of_all


def run(command: list[str], **more: str) -> str:
    """Run a program to its end; return what it has said."""
    ran = subprocess.run(
        command,
        env=environment(**more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@nightly
def test_two_workers_make_the_same_tables(expected: Expected, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    program, package = tmp_path / "run_pipeline.py", tmp_path / "django_outbox.zip"
    program.write_text(f"{MAIN}; sys.exit(main())")
    with ZipFile(package, "w") as archive:
        for file in (ROOT / "django_outbox").rglob("*"):
            if file.suffix in {".py", ".txt"}:
                archive.write(file, file.relative_to(ROOT))
    with standalone(tmp_path, workers=2) as master:
        run(
            submit(
                *("--master", master, "--py-files", str(package), str(program)),
                *("run", "--config", str(expected.config(lake))),
                properties={**PROPERTIES, **SQL},
            )
        )
    expected.compare(lake)
    for worker in ("worker-0", "worker-1"):
        assert list((tmp_path / worker).glob("app-*/*/stderr")), worker


@nightly
def test_a_connect_server_makes_the_same_tables(
    expected: Expected, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    report = tmp_path / "audit.json"
    file = ["--config", str(expected.config(lake))]
    code = (
        f"{MAIN}\n"
        f"assert main(['run', *{file}]) == 0\n"
        f"assert main(['maintain', '--table', 'silver', *{file}]) == 0\n"
        f"audit = ['audit', '--since', 'last', *{file}]\n"
        f"assert main([*audit, '--json', {str(report)!r}]) == 3\n"
        # Nothing is new since the one before.
        "assert main(audit) == 4\n"
    )
    with connect_server(tmp_path, SQL) as url:
        said = run([sys.executable, "-c", code], SPARK_REMOTE=url, DATABASE_URL="")
    assert "silver: 0 rows deleted" in said
    assert "loss: not judged (no database)" in said.splitlines()
    total = json.loads(report.read_text())["total"]
    found = {name: count for name, count in total.items() if isinstance(count, int)}
    wrong = {name: count for name, count in found.items() if count}
    assert wrong == {"messages": 9, "copies": 4, "disorder": 1}
    expected.compare(lake)
