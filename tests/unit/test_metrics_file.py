"""The pipeline's metrics in a file, from one run to the next."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from django_outbox.pipeline.query_progress import MetricsFile, Reading
from django_outbox.pipeline.textfile import read, write

PREFIX = "django_outbox_pipeline_"


def batch(**counts: int | None) -> Reading:
    whole = Reading(query="refine", batch=0, rows=10, seconds=1.0, rate=10.0, lag=None)
    return replace(whole, **{"copies": 0, "late": 1, "quarantined": 4, **counts})  # type: ignore[arg-type]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pipeline.prom"


def test_counters_begin_at_zero_before_the_first_batch(path: Path) -> None:
    """Otherwise Prometheus could not see what that has counted."""
    MetricsFile(path, queries=("ingest", "refine"))
    lines = path.read_text().splitlines()
    assert f'{PREFIX}quarantined_total{{query="refine"}} 0' in lines
    assert f'{PREFIX}rows_total{{query="ingest"}} 0' in lines
    assert "quarantined" not in "".join(line for line in lines if "ingest" in line)


def test_the_next_run_goes_on_with_what_the_file_has(path: Path) -> None:
    for _ in range(2):
        MetricsFile(path, queries=("refine",))(batch())
    found = read(path)
    assert found["quarantined_total"] == {"refine": 8}
    assert found["batches_total"] == {"refine": 2}
    MetricsFile(path, queries=("refine",))
    # A run that finds nothing to do leaves the rest as it is.
    assert read(path) == found


def test_what_a_query_does_not_count_is_left_out(path: Path) -> None:
    """A Connect server does not tell."""
    observe = MetricsFile(path, queries=("refine",))
    observe(batch(copies=None, late=None, quarantined=None))
    assert "quarantined_total" not in read(path)


def test_a_file_is_read_as_it_was_written(path: Path) -> None:
    values = {
        "audit_broken": {"order": 1.0},
        "audit_timestamp_seconds": {"": 1764328080.5},
    }
    write(path, values)
    assert read(path) == values
