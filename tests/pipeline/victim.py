"""
Pipelines in one process, each held up behind one table, and one `kill -9`.

    python -m tests.pipeline.victim FOLDER SERVERS TOPIC POINT ...

The points are bronze and any of silver, late and latest; the lakes are named
after them. Behind all but bronze the batch stands still. Bronze is written by
Spark alone: there a thread waits for the commit in the table's log, which comes
before the checkpoint hears of it, and that is when all are killed, driver and
Java together.

Run again on the same folder, the batches that stood still begin again and are
killed at the same points once more; bronze is killed behind its next batch, for
which there must be more records.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from django_outbox.pipeline.pipeline_settings import PipelineSettings
from django_outbox.pipeline.session import open_session

from .lakes import NOW, SPARK


def die_at(commit: Path) -> None:
    while not commit.exists():
        pass
    os.killpg(0, signal.SIGKILL)


def main(folder: str, servers: str, topic: str, *points: str) -> None:
    def settings_of(point: str) -> PipelineSettings:
        return PipelineSettings(
            lake=f"{folder}/{point}",
            kafka={"bootstrap.servers": servers},
            topics=(topic,),
            cores="2",
            memory="1g",
            spark=SPARK,
        )

    spark = open_session(settings_of(""))
    from django_outbox.pipeline.lake import tables
    from django_outbox.pipeline.lake.ingest import start_ingest
    from django_outbox.pipeline.lake.refine import start_refine

    def hold(point: str) -> None:
        # A session has one query of a name.
        session, settings = spark.newSession(), settings_of(point)
        tables.create(session, settings)
        start_ingest(session, settings, trigger=NOW).awaitTermination()
        is_there = threading.Event()

        def reached(table: str) -> None:
            if table == point:
                is_there.set()
                threading.Event().wait()

        query = start_refine(session, settings, trigger=NOW, reached=reached)
        while not is_there.wait(1):
            assert query.isActive, point

    with ThreadPoolExecutor() as pool:
        list(pool.map(hold, {*points} - {"bronze"}))
    settings = settings_of("bronze")
    tables.create(spark, settings)
    # Commit 0 made the table; the last one is of the batch that was killed.
    log = Path(settings.table_path("bronze"), "_delta_log")
    commit = log / f"{len(list(log.glob('*.json'))):020}.json"
    threading.Thread(target=die_at, args=[commit], daemon=True).start()
    start_ingest(spark, settings, trigger=NOW).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
