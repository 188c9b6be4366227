"""
How fast topics become tables and are audited, beside a bare stream.

    python -m tests.benchmarks.lake --records 1000000 --rounds 3
    python -m tests.benchmarks.lake --records 2000000 --keys 2000000
    python -m tests.benchmarks.lake --batches --keys 10000000

All sides run in turn in one session, on the same topic (100-byte values, a
relay's four headers, 4 partitions, one record in a hundred sent twice):

- *bare*: Kafka to a Delta table, the shortest stream that Spark can be told;
- *ingest* and *refine*: the pipeline's two steps, from empty tables;
- *more*: ingest and refine once more, of a tenth as many records, on tables
  that are full now;
- *audit*: topic, archive and lake against each other.

Prints records each second, CPU seconds of Python and Java together, the most
memory that they held, ratios to the bare stream of the same round, and the
machine's load; checks that every record is in `silver` once. Starting the
session is not counted; `--start` measures that instead: from the command to a
first record in `silver`. `--batches` measures batches of a thousand records in a
running refine, with ten thousand keys in `latest` and with `--keys`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import psutil

from django_outbox.pipeline.pipeline_settings import PipelineSettings

from ..processes import manage
from ..services import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from django_outbox.pipeline.query_progress import Reading

PARTITIONS = 4
COPIED = 100
"""One record of so many is sent twice."""

FEW_KEYS, SMALL_BATCH, SMALL_BATCHES = 10_000, 1_000, 5
"""Keys that `--batches` compares with, records of each batch, batches of each run."""

ARCHIVE = """
INSERT INTO outbox_archive (id, kafka_topic, kafka_key, kafka_value, message_id,
    create_time, cluster_id, attempts, last_error, kafka_header_keys,
    kafka_header_values)
SELECT n, %(topic)s, 'key-' || n %% %(keys)s, repeat('x', 100),
    lpad(to_hex(n), 32, '0')::uuid, to_timestamp(1700000000), 0, 0, '', '{}', '{}'
FROM generate_series(%(first)s, %(last)s) AS n
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--start", action="store_true")
    parser.add_argument("--batches", action="store_true")
    arguments = parser.parse_args()

    from django_outbox.devstack import devstack

    with devstack(progress=print) as stack, tempfile.TemporaryDirectory() as folder:
        os.environ.update(stack.environment)
        manage("migrate", "--verbosity", "0")
        if arguments.start:
            for _ in range(arguments.rounds):
                print(f"first row after {start(folder):.1f} s  {load()}")
            return
        if arguments.batches:
            measure_batches(folder, arguments.keys, arguments.rounds)
            return
        ratios: dict[str, list[float]] = {}
        for number in range(1, arguments.rounds + 1):
            print(f"round {number}")
            rates = play(folder, arguments.records, arguments.keys)
            for side, rate in rates.items():
                ratios.setdefault(side, []).append(rate / rates["bare"])
    for side, values in ratios.items():
        print(f"{side} ÷ bare, median: {statistics.median(values):.2f}")


def settings_of(folder: str, topic: str) -> PipelineSettings:
    return PipelineSettings(
        lake=f"{folder}/{topic}",
        kafka={"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]},
        topics=(topic,),
        database_url=os.environ["DATABASE_URL"],
        source="shop",
        cores="2",
    )


def play(folder: str, records: int, keys: int) -> dict[str, float]:
    """Run all sides once; return records each second."""
    from django_outbox.pipeline.audit.comparison import audit
    from django_outbox.pipeline.lake import tables
    from django_outbox.pipeline.pipeline_run import run_once
    from django_outbox.pipeline.session import open_session

    topic = f"bench-{uuid4()}"
    settings = settings_of(folder, topic)
    fill(topic, 1, records, keys)
    spark = open_session(settings)
    warm_up(spark, folder)

    def run(step: str) -> Callable[[], object]:
        return lambda: run_once(spark, settings, stop=threading.Event(), steps=[step])

    sent = records + records // COPIED
    rates = {
        "bare": timed("bare", lambda: bare(spark, settings), sent),
        "ingest": timed("ingest", run("ingest"), sent),
        "refine": timed("refine", run("refine"), sent),
    }
    archive(topic, 1, records, keys)
    timed("audit", lambda: check(audit(spark, settings).total, records), records)
    more = records // 10
    fill(topic, records + 1, records + more, keys)
    timed("more: ingest", run("ingest"), more + more // COPIED)
    rates["more"] = timed("more: refine", run("refine"), more + more // COPIED)
    silver = tables.read(spark, settings, "silver")
    assert silver.select("id").distinct().count() == silver.count() == records + more
    assert tables.read(spark, settings, "late").isEmpty()
    for table in ("bronze", "silver", "latest"):
        size = tables.detail(spark, settings, table)["sizeInBytes"]
        rows = tables.read(spark, settings, table).count()
        print(f"  {table:<13}{size / rows:>9.0f} bytes a row")
    spark.stop()
    return rates


def measure_batches(folder: str, keys: int, rounds: int) -> None:
    """Print seconds of small batches, with few keys in `latest` and with many."""
    from django_outbox.pipeline.lake import tables
    from django_outbox.pipeline.pipeline_run import run_once
    from django_outbox.pipeline.session import open_session

    few = replace(settings_of(folder, "few"), topics=("orders",), batch_files=1)
    many = replace(settings_of(folder, "many"), topics=("orders",), batch_files=1)
    spark = open_session(few)
    for settings, count in ((few, FEW_KEYS), (many, keys)):
        tables.create(spark, settings)
        rows = keyed_rows(spark, 0, count).select(*tables.RECORD_COLUMNS)
        rows.write.format("delta").mode("append").save(settings.table_path("latest"))
    seconds: dict[str, list[float]] = {}
    # The first round warms up.
    for number in range(rounds + 1):
        for name, settings, count in (("few", few, FEW_KEYS), ("many", many, keys)):
            for batch in range(SMALL_BATCHES):
                first = (number * SMALL_BATCHES + batch) * SMALL_BATCH + keys
                rows = keyed_rows(spark, first, SMALL_BATCH, keys=count)
                rows = rows.select(*tables.BRONZE_COLUMNS).coalesce(1)
                path = settings.table_path("bronze")
                rows.write.format("delta").mode("append").save(path)
            read: list[Reading] = []
            used = cpu_seconds()
            stop = threading.Event()
            run_once(
                spark, settings, stop=stop, steps=["refine"], observers=[read.append]
            )
            used = (cpu_seconds() - used) / SMALL_BATCHES
            taken = [reading.seconds for reading in read]
            assert len(taken) == SMALL_BATCHES
            shown = " ".join(f"{one:.1f}" for one in taken)
            print(f"  {name:<6}{count:>12,} keys  {shown} s  {used:.1f} CPU-s each")
            if number:
                seconds.setdefault(name, []).extend(taken)
    median = {name: statistics.median(of) for name, of in seconds.items()}
    print("  ".join(f"{name}: {of:.1f} s a batch" for name, of in median.items()))
    print(f"many ÷ few, median: {median['many'] / median['few']:.2f}  {load()}")
    spark.stop()


def keyed_rows(
    spark: SparkSession, first: int, count: int, *, keys: int = 0
) -> DataFrame:
    """Rows of silver and bronze with ids from `first`; keys are spread evenly."""
    from pyspark.sql import functions as F

    id = F.col("id") + first
    number = F.pmod(F.xxhash64("id"), F.lit(keys)) if keys else F.col("id")
    headers = {
        "outbox-message-id": id.cast("string"),
        "outbox-id": id.cast("string"),
        "outbox-source": F.lit("shop"),
        "outbox-created-at": F.lit("1700000000000000"),
    }
    pairs = [
        F.struct(F.lit(name).alias("key"), text.cast("binary").alias("value"))
        for name, text in headers.items()
    ]
    return spark.range(count).select(
        F.lit("shop").alias("source"),
        id.alias("id"),
        id.cast("string").alias("message_id"),
        F.timestamp_seconds(F.lit(1_700_000_000)).alias("created_at"),
        F.lit("orders").alias("topic"),
        F.lit(0).alias("partition"),
        id.alias("offset"),
        F.current_timestamp().alias("timestamp"),
        F.lit(0).alias("timestamp_type"),
        F.concat(F.lit("key-"), number.cast("string")).cast("binary").alias("key"),
        F.lit("x" * 100).cast("binary").alias("value"),
        F.lit(False).alias("is_deleted"),  # noqa: FBT003 - the literal itself
        F.array(*pairs).alias("headers"),
    )


def bare(spark: SparkSession, settings: PipelineSettings) -> None:
    (topic,) = settings.topics
    stream = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", settings.kafka["bootstrap.servers"])
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .option("maxOffsetsPerTrigger", settings.batch_records)
        .load()
    )
    stream.writeStream.format("delta").option(
        "checkpointLocation", f"{settings.lake}-bare/checkpoint"
    ).trigger(availableNow=True).start(f"{settings.lake}-bare/table").awaitTermination()


def check(total: Callable[[str], int], records: int) -> None:
    assert total("messages") == records
    assert total("copies") == records // COPIED
    for name in ("lost", "altered", "disorder", "lake_lost", "lake_copies"):
        assert total(name) == 0, name


def warm_up(spark: SparkSession, folder: str) -> None:
    """Let Java compile what all sides use."""
    from django_outbox.pipeline.audit.comparison import audit
    from django_outbox.pipeline.pipeline_run import run_once

    topic = f"warm-{uuid4()}"
    fill(topic, 1, 20_000, 100)
    settings = settings_of(folder, topic)
    bare(spark, settings)
    run_once(spark, settings, stop=threading.Event())
    audit(spark, settings)


def start(folder: str) -> float:
    """Seconds from the command to the first record in `silver`."""
    topic = f"start-{uuid4()}"
    fill(topic, 1, 1, 1)
    commit = Path(folder, topic, "silver", "_delta_log", f"{1:020}.json")
    began = time.monotonic()
    command = [sys.executable, "-m", "django_outbox.pipeline", "run"]
    options = ["--topic", topic, "--lake", f"{folder}/{topic}"]
    with subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL) as running:
        while not commit.exists():
            assert running.poll() is None
            time.sleep(0.02)  # nothing is waited for but the figure itself
        return time.monotonic() - began


def timed(side: str, run: Callable[[], object], records: int) -> float:
    """Run, print a line, return records each second."""
    before, began = cpu_seconds(), time.monotonic()
    run()
    seconds = time.monotonic() - began
    rate = records / seconds
    used = cpu_seconds() - before
    print(
        f"  {side:<13}{rate:>9,.0f}/s  {seconds:>6.1f} s  {used:>6.1f} CPU-s"
        f"  {memory() / 2**30:.1f} GiB  {load()}",
        flush=True,
    )
    return rate


def processes() -> list[psutil.Process]:
    """This process and its Java; the services are children of the devstack's."""
    own = psutil.Process()
    spark = [
        c for c in own.children() if any("org.apache.spark" in a for a in c.cmdline())
    ]
    return [own, *spark]


def cpu_seconds() -> float:
    return sum(t.user + t.system for p in processes() for t in [p.cpu_times()])


def memory() -> int:
    return sum(int(p.memory_info().rss) for p in processes())


def load() -> str:
    return f"load {os.getloadavg()[0]:.1f}"


def fill(topic: str, first: int, last: int, keys: int) -> None:
    from confluent_kafka import Producer

    if first == 1:
        Topics(os.environ["KAFKA_BOOTSTRAP_SERVERS"]).create(
            topic, partitions=PARTITIONS
        )
    producer = Producer(
        {
            "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"],
            "compression.type": "lz4",
            "linger.ms": 20,
            "queue.buffering.max.messages": 1_000_000,
            "partitioner": "murmur2_random",
            # Without it a retry may overtake, and the audit finds that.
            "enable.idempotence": True,
        }
    )
    for id in range(first, last + 1):
        headers: list[tuple[str, str | bytes | None]] = [
            ("outbox-message-id", str(UUID(int=id)).encode()),
            ("outbox-id", str(id).encode()),
            ("outbox-source", b"shop"),
            ("outbox-created-at", b"1700000000000000"),
        ]
        for _ in range(2 if id % COPIED == 0 else 1):
            while True:
                try:
                    producer.produce(
                        topic, key=f"key-{id % keys}", value=b"x" * 100, headers=headers
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
    assert producer.flush(60) == 0


def archive(topic: str, first: int, last: int, keys: int) -> None:
    import psycopg

    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        values = {"topic": topic, "first": first, "last": last, "keys": keys}
        connection.execute(ARCHIVE, values)


if __name__ == "__main__":
    main()
