"""A key is erased: from all tables, all files and all logs, and nothing else is."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyarrow import parquet

from django_outbox.pipeline.__main__ import main
from django_outbox.pipeline.commands import forget
from django_outbox.pipeline.lake import tables
from django_outbox.pipeline.pipeline_settings import PipelineSettings

from ..machine import nightly
from .lakes import FilledLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEY, OTHER = b"customer-4711", b"customer-4712"


def in_tables(
    spark: SparkSession, settings: PipelineSettings
) -> dict[str, list[tuple[bytes, str, int]]]:
    """Return the key, topic and offset of all rows of each table."""
    return {
        table: sorted(
            (bytes(row["key"]), row["topic"], row["offset"])
            for row in tables.read(spark, settings, table).collect()
        )
        for table in tables.SCHEMAS
    }


def in_files(lake: Path) -> set[tuple[bytes, str]]:
    """Return the keys and topics of all data files, read without Spark."""
    found = set()
    for table in tables.SCHEMAS:
        for file in (lake / table).rglob("*.parquet"):
            if file.parent.name != "_delta_log":
                rows = parquet.read_table(file, columns=["key", "topic"]).to_pylist()
                found |= {(row["key"], row["topic"]) for row in rows}
    return found


@nightly
def test_a_key_is_erased_everywhere_and_nothing_else(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    @contextmanager
    def session(_: PipelineSettings) -> Iterator[SparkSession]:
        """Give the session of all tests, which a command would end."""
        yield spark

    monkeypatch.setattr(forget, "session", session)
    settings = PipelineSettings(lake=str(tmp_path))
    lake = FilledLake(spark, settings)

    def put(*messages: tuple[int, bytes, str]) -> None:
        lake.put_values(*((id, topic, key, b"{}") for id, key, topic in messages))

    # Refine has read none of it, and must before files are deleted.
    put((2, KEY, "a"), (3, OTHER, "a"), (4, KEY, "b"))
    put((5, KEY, "a"), (6, OTHER, "a"))
    # As a writer that was killed leaves it.
    file = next((tmp_path / "bronze").glob("*.parquet"))
    shutil.copy(file, tmp_path / "quarantine" / "part-killed.parquet")

    command = ["forget", "--lake", settings.lake, "--key", KEY.decode()]
    assert main([*command, "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        "bronze: 3 rows",
        "silver: 0 rows",
    ]
    assert main([*command, "--topic", "a,no-such"]) == 0
    said = capsys.readouterr()
    assert "Kafka may still have messages with this key" in said.err
    assert said.out.splitlines() == [
        "bronze: 2 rows erased; left: rows 0, files 0",
        "silver: 2 rows erased; left: rows 0, files 0",
        "late: 0 rows erased; left: rows 0, files 0",
        "latest: 1 rows erased; left: rows 0, files 0",
        "quarantine: 0 rows erased; left: rows 0, files 0",
    ]
    kept = [(KEY, "b", 2), (OTHER, "a", 1), (OTHER, "a", 4)]
    assert in_tables(spark, settings) == {
        "bronze": kept,
        "silver": kept,
        "late": [],
        "latest": [(KEY, "b", 2), (OTHER, "a", 4)],
        "quarantine": [],
    }
    assert in_files(tmp_path) == {(KEY, "b"), (OTHER, "a")}
    for log in tmp_path.glob("*/_delta_log/*.json"):
        text = log.read_bytes().lower()
        assert KEY not in text
        assert KEY.hex().encode() not in text

    put((7, OTHER, "a"))
    lake.refine()
    found = in_tables(spark, settings)
    assert found["silver"] == [*kept, (OTHER, "a", 5)]
    assert found["late"] == []
