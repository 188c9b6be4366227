"""
A pipeline that kills itself with `kill -9`, driver and Java together.

    python -m tests.pipeline.victim LAKE SERVERS TOPIC POINT

The point is a table that a batch has just been written to. Bronze is written
by Spark alone: there a thread waits for the commit in the table's log, which
comes before the checkpoint hears of it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from django_outbox.pipeline.config import PipelineSettings
from django_outbox.pipeline.session import open_session

from .lakes import SPARK


def die() -> None:
    os.killpg(0, signal.SIGKILL)


def die_at(commit: Path) -> None:
    while not commit.exists():
        pass
    die()


def main(lake: str, servers: str, topic: str, point: str) -> None:
    settings = PipelineSettings(
        lake=lake,
        kafka={"bootstrap.servers": servers},
        topics=(topic,),
        cores="2",
        memory="1g",
        spark=SPARK,
    )
    spark = open_session(settings)
    from django_outbox.pipeline.running import run_once

    if point == "bronze":
        # Commit 0 made the table.
        commit = Path(lake, "bronze", "_delta_log", f"{1:020}.json")
        threading.Thread(target=die_at, args=[commit], daemon=True).start()
    run_once(
        spark,
        settings,
        stop=threading.Event(),
        parts=["ingest" if point == "bronze" else "refine"],
        reached=lambda table: die() if table == point else None,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
