"""What the tests do with a lake: write its topics, run its pipeline, read it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

from django_outbox.exceptions import LakeInUse
from django_outbox.pipeline.lake import tables
from django_outbox.pipeline.lake.batch_writer import BatchCounts
from django_outbox.pipeline.lake.maintenance import MaintenanceResult, maintain
from django_outbox.pipeline.pipeline_run import start_step
from tests.machine import NIGHTLY
from tests.services import Headers

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

    from django_outbox.pipeline.pipeline_settings import PipelineSettings

SMALL = {
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.stats.collect": "false",
    # Nothing here runs long enough for a compiler to pay.
    "spark.driver.extraJavaOptions": (
        # With one compiler Java keeps 48 MB of compiled code; Spark has more.
        "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
    ),
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
}
"""What keeps small jobs small."""

SPARK = {
    # One session runs all tests; what it keeps of former jobs would fill its memory.
    "spark.sql.ui.retainedExecutions": "10",
    "spark.ui.retainedJobs": "10",
    "spark.ui.retainedStages": "10",
    "spark.ui.retainedTasks": "100",
    **({} if NIGHTLY else SMALL),
}
"""Properties of the tests' session; the nightly run has the plans that users have."""

NOW = {"availableNow": True}


def outbox_headers(
    id: int,
    *,
    source: str = "shop",
    message_id: str = "",
    created_at: str = "1700000000000000",
) -> Headers:
    """The headers that a relay adds."""
    return [
        ("outbox-message-id", (message_id or f"{source}-{id}").encode()),
        ("outbox-id", str(id).encode()),
        ("outbox-source", source.encode()),
        ("outbox-created-at", created_at.encode()),
    ]


class Sender:
    """Writes records as a relay does, or not quite as a relay does."""

    def __init__(self, servers: str, *, timestamp: int = 0) -> None:
        self._servers = servers
        # Of each record, in ms; 0 is now.
        self._timestamp = timestamp
        self._producer = self.producer()

    def producer(self, **config: str) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self._servers,
                "linger.ms": 0,
                "log_level": 0,
                **config,
            }
        )

    def send(
        self,
        topic: str,
        *ids: int,
        key: str | None = "k",
        value: str | bytes | None = "{}",
        source: str = "shop",
        message_id: str = "",
        partition: int = 0,
        backfill: str = "",
    ) -> None:
        """Send records that differ in their ids, in this order."""
        for id in ids:
            headers = outbox_headers(id, source=source, message_id=message_id)
            if backfill:
                headers.append(("outbox-backfill", backfill.encode()))
            self._producer.produce(
                topic,
                key=key,
                value=value,
                headers=headers,
                partition=partition,
                timestamp=self._timestamp,
            )
        assert self._producer.flush(10) == 0

    def send_unidentified(self, topic: str, value: str) -> None:
        """Send a record that no outbox has sent."""
        self._producer.produce(topic, key="k", value=value, partition=0)
        assert self._producer.flush(10) == 0

    def send_of_every_kind(self, topic: str) -> None:
        """Fill two partitions with something for each table, copies among it."""
        self.send(topic, 1, 2, 2, 5, 3, 3, key="a")
        self.send(topic, 4, 6, 4, 7, key="b", partition=1)
        self.send(topic, 8, 8, key=None)
        self.send(topic, 9, value=None, key="c")
        self.send_unidentified(topic, "no headers")

    def send_in_transactions(self, topic: str, *, ids: list[int], bad: int) -> None:
        """Send each in a transaction of its own, and abort one of them."""
        producer = self.producer(**{"transactional.id": topic})
        producer.init_transactions(10)
        for id in ids:
            producer.begin_transaction()
            headers = outbox_headers(id)
            producer.produce(topic, key="k", value="{}", headers=headers, partition=0)
            assert producer.flush(10) == 0
            if id == bad:
                producer.abort_transaction(10)
            else:
                producer.commit_transaction(10)


class Contents:
    """All rows of a lake, read once."""

    def __init__(self, spark: SparkSession, settings: PipelineSettings) -> None:
        self._rows: dict[str, list[Row]] = {
            table: tables.read(spark, settings, table).collect()
            for table in tables.SCHEMAS
        }

    def __call__(self, table: str, topic: str, *columns: str) -> list[tuple[Any, ...]]:
        """These columns of the rows of one topic, sorted; ids by default."""
        found = [row for row in self._rows[table] if row["topic"] == topic]
        return sorted(
            (tuple(row[column] for column in columns or ("id",)) for row in found),
            key=repr,
        )

    def ids(self, table: str, topic: str) -> list[int]:
        return sorted(id for (id,) in self(table, topic))

    def rows(self, table: str) -> list[str]:
        """All rows with all columns, as text, sorted."""
        return sorted(map(repr, self._rows[table]))

    def count(self, table: str) -> int:
        return len(self._rows[table])


class FilledLake:
    """A lake without a Kafka: what ingest would append is appended by hand."""

    def __init__(self, spark: SparkSession, settings: PipelineSettings) -> None:
        self.spark, self.settings = spark, settings
        self._offset = 0
        self.topic = "orders"
        """Of the messages to put."""
        tables.create(spark, settings)

    def put(
        self,
        *ids: int,
        days: int = 0,
        length: int | None = 1,
        key: str = "k",
        partition: int = 0,
        first: int | None = None,
        created_at: str = "1700000000000000",
        series: str = "shop",
    ) -> None:
        """
        Append a file with these messages of one key, so many days old.

        Args:
            length: Of the values, in bytes; None for tombstones.
            first: Offset of the first one; behind the last one by default.
            series: Begin of their message ids.
        """
        at = datetime.now(UTC) - timedelta(days=days)
        offset = self._offset if first is None else first
        rows = [
            (
                *(self.topic, partition, offset + n, at, 0, key.encode()),
                None if length is None else os.urandom(length),
                outbox_headers(id, message_id=f"{series}-{id}", created_at=created_at),
            )
            for n, id in enumerate(ids)
        ]
        self._offset = max(self._offset, offset + len(ids))
        self._append(rows)

    def put_values(
        self, *messages: tuple[int, str, bytes | None, bytes | None]
    ) -> None:
        """Append a file with these messages: id, topic, key, value."""
        at = datetime.now(UTC)
        rows = [
            (topic, 0, self._offset + n, at, 0, key, value, outbox_headers(id))
            for n, (id, topic, key, value) in enumerate(messages)
        ]
        self._offset += len(rows)
        self._append(rows)

    def put_unidentified(self, *, offset: int = 0) -> None:
        """Append a file with a row that no outbox has sent, always the same."""
        at = datetime(2026, 1, 31, tzinfo=UTC)
        self._append([(self.topic, 0, offset, at, 0, b"k", b"v", [])])

    def _append(self, rows: list[tuple[Any, ...]]) -> None:
        frame = self.spark.createDataFrame(rows, tables.SCHEMAS["bronze"]).coalesce(1)
        path = self.settings.table_path("bronze")
        frame.write.format("delta").mode("append").save(path)

    def refine(self) -> list[BatchCounts]:
        """Refine what is in bronze; return the counts of its batches."""
        counts: dict[int, BatchCounts] = {}
        query = start_step("refine", self.spark, self.settings, NOW, counts)
        query.awaitTermination()
        return [*counts.values()]

    def maintain(self, *names: str, **options: Any) -> list[MaintenanceResult]:
        return list(maintain(self.spark, self.settings, names=names, **options))

    def ids(self, table: str) -> list[int]:
        rows = tables.read(self.spark, self.settings, table).select("offset").collect()
        return sorted(row["offset"] + 1 for row in rows)

    def lose_refined(self) -> None:
        """Throw away all that refine has made of bronze."""
        self.lose_checkpoint("refine")
        for table in ("silver", "late", "latest", "quarantine"):
            shutil.rmtree(self.settings.table_path(table))
        self.spark.catalog.clearCache()
        tables.create(self.spark, self.settings)

    def lose_checkpoint(self, query: str) -> None:
        shutil.rmtree(self.settings.checkpoint(query))


def lost_after(looks: int) -> Callable[[], None]:
    """Return a check of a lease that another process takes after so many looks."""
    left = iter(range(looks))

    def check() -> None:
        if next(left, None) is None:
            raise LakeInUse("taken")

    return check
