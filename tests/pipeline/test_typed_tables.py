"""Values as columns on disk, through a fault, a new schema and a rebuild."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from django_outbox.exceptions import ConfigurationError
from django_outbox.pipeline.lake import tables
from django_outbox.pipeline.lake.rebuilding import rebuild
from django_outbox.pipeline.lake.refine import start_refine
from django_outbox.pipeline.lake.typed_tables import check_names
from django_outbox.pipeline.pipeline_settings import PipelineSettings, build

from ..machine import nightly
from .lakes import NOW, FilledLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLD = "status STRING NOT NULL, total INT"
TABLE = "typed/orders"


class Fault(Exception):
    """What a test raises within a batch."""


def fail(table: str) -> None:
    if table == "typed":
        raise Fault


def contents(lake: FilledLake) -> list[tuple[Any, ...]]:
    """Return id, whether it is deleted, and the payload of each row."""
    rows = tables.read(lake.spark, lake.settings, TABLE).orderBy("id").collect()
    return [
        (row["id"], row["is_deleted"], row["payload"] and row["payload"].asDict())
        for row in rows
    ]


@pytest.mark.parametrize(
    ("schema", "name"),
    [
        ("`order id` INT", "order id"),
        ("lines ARRAY<STRUCT<`unit=price`: INT>>", "unit=price"),
        ("prices MAP<STRING, STRUCT<`a,b`: INT>>", "a,b"),
    ],
)
def test_a_column_that_delta_cannot_have_is_named_before_the_first_batch(
    spark: SparkSession, tmp_path: Path, schema: str, name: str
) -> None:
    settings = PipelineSettings(lake=str(tmp_path), schemas={"orders": schema})
    check_names(settings)
    with pytest.raises(ConfigurationError, match=f"orders: a typed .* '{name}'"):
        start_refine(spark, replace(settings, typed_tables=True), trigger=NOW)


@nightly
def test_values_are_columns_and_come_once(spark: SparkSession, tmp_path: Path) -> None:
    settings = PipelineSettings(
        lake=str(tmp_path), schemas={"orders": OLD}, typed_tables=True
    )
    lake = FilledLake(spark, settings)
    lake.put_values(
        (1, "orders", b"a", b'{"status": "paid", "total": 5}'),
        (2, "orders", b"a", b'{"total": 5}'),
        (3, "others", b"a", b'{"status": "paid"}'),
        (4, "orders", b"b", None),
        (5, "orders", None, b'{"status": "no key"}'),
    )
    # The batch fails between the typed table and silver, and is written again.
    broken = start_refine(spark, settings, trigger=NOW, reached=fail)
    with pytest.raises(Exception, match="Fault"):
        broken.awaitTermination()
    first = [
        (1, False, {"status": "paid", "total": 5}),
        (4, True, None),
        (5, False, {"status": "no key", "total": None}),
    ]
    assert contents(lake) == first
    # The log would keep values otherwise.
    properties = tables.detail(spark, settings, TABLE)["properties"]
    assert properties[tables.INDEXED] == str(tables.RECORD_INDEXED)
    assert tables.read(spark, settings, "silver").isEmpty()
    lake.refine()
    assert contents(lake) == first
    assert tables.read(spark, settings, "silver").count() == 5

    # A new field is added; another type needs a rebuild.
    lake.settings = replace(settings, schemas={"orders": f"{OLD}, note STRING"})
    lake.put_values((6, "orders", b"c", b'{"status": "new", "note": "n"}'))
    lake.refine()
    assert contents(lake)[-1] == (
        *(6, False),
        {"status": "new", "total": None, "note": "n"},
    )
    lake.settings = replace(settings, schemas={"orders": "total DECIMAL(9, 2)"})
    lake.put_values((7, "orders", b"c", b'{"total": 1.5}'))
    with pytest.raises(Exception, match="orders has columns of other types"):
        lake.refine()
    list(rebuild(spark, lake.settings))
    totals = [payload and payload["total"] for _, _, payload in contents(lake)]
    assert totals == [5, 5, None, None, None, Decimal("1.50")]

    assert lake.maintain()[-1].table == TABLE
    assert [done.table for done in lake.maintain(TABLE)] == [TABLE]
    with pytest.raises(ConfigurationError, match=f"no table 'gold'; .* {TABLE}"):
        lake.maintain("gold")


@nightly
def test_a_table_that_a_rebuild_makes_has_no_values_in_its_log(
    spark: SparkSession, tmp_path: Path
) -> None:
    settings = PipelineSettings(lake=str(tmp_path), schemas={"orders": OLD})
    lake = FilledLake(spark, settings)
    lake.put_values((1, "orders", b"a", b'{"status": "paid", "total": 5}'))
    lake.refine()
    lake.settings = replace(settings, typed_tables=True)
    list(rebuild(spark, lake.settings))
    assert contents(lake) == [(1, False, {"status": "paid", "total": 5})]
    properties = tables.detail(spark, lake.settings, TABLE)["properties"]
    assert properties[tables.INDEXED] == str(tables.RECORD_INDEXED)


def test_decrypted_values_are_not_stored() -> None:
    with pytest.raises(ConfigurationError, match="typed_tables: it would store what"):
        build({"lake": "lake", "typed_tables": True, "unwrap": True})
