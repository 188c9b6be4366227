"""
Four pipelines in one process, each held up behind one table, and one `kill -9`.

    python -m tests.pipeline.victim FOLDER SERVERS TOPIC

The lakes are named after the points. Behind silver, late and latest the batch
stands still. Bronze is written by Spark alone: there a thread waits for the
commit in the table's log, which comes before the checkpoint hears of it, and
that is when all are killed, driver and Java together.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from django_outbox.pipeline.config import PipelineSettings
from django_outbox.pipeline.session import open_session

from .lakes import NOW, SPARK

HELD = ("silver", "late", "latest")


def die_at(commit: Path) -> None:
    while not commit.exists():
        pass
    os.killpg(0, signal.SIGKILL)


def main(folder: str, servers: str, topic: str) -> None:
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
    from django_outbox.pipeline import tables
    from django_outbox.pipeline.ingest import start_ingest
    from django_outbox.pipeline.refine import start_refine

    for point in HELD:
        settings = settings_of(point)
        tables.create(spark, settings)
        start_ingest(spark, settings, trigger=NOW).awaitTermination()
        is_there = threading.Event()

        def hold(
            table: str, *, point: str = point, is_there: threading.Event = is_there
        ) -> None:
            if table == point:
                is_there.set()
                threading.Event().wait()

        # A session has one query of a name.
        start_refine(spark.newSession(), settings, trigger=NOW, reached=hold)
        assert is_there.wait(60), point
    settings = settings_of("bronze")
    tables.create(spark, settings)
    # Commit 0 made the table.
    commit = Path(settings.table_path("bronze"), "_delta_log", f"{1:020}.json")
    threading.Thread(target=die_at, args=[commit], daemon=True).start()
    start_ingest(spark, settings, trigger=NOW).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
