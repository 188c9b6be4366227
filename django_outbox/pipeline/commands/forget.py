"""`forget`: erase every row with one message key from the lake."""

from __future__ import annotations

import sys
import threading
from argparse import Namespace
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from ..pipeline_settings import split_topics
from .shared_options import Commands, add_command, say, session, settings_of

HINT: Final = (
    "Kafka may still have messages with this key, and the outbox's database, too. As"
    " long as it has, `audit` counts them as lake_lost, and a lake that reads the"
    " topics again gets them back."
)


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "forget",
        execute,
        words="erase every row with a message key from all tables and files; exit 3"
        " if any is left",
    )
    parser.add_argument("--key", required=True, help="message key, as text")
    parser.add_argument(
        "--dry-run", action="store_true", help="only count the rows; change nothing"
    )


def execute(chosen: Namespace, defaults: Mapping[str, Any]) -> int:
    """Return 0, or 3 if a row or a file still has the key."""
    # --topic selects records; the settings say which topics are in use.
    settings = settings_of(Namespace(**{**vars(chosen), "topics": None}), defaults)
    selection: Any = {
        "key": chosen.key.encode(),
        "topics": split_topics(chosen.topics or ()),
    }
    with session(settings) as spark:
        from ..audit.verdict import EXIT_BROKEN
        from ..lake import tables
        from ..lake.forgetting import erase, find
        from ..lake.rebuilding import discard
        from ..lake.run_lease import MAINTENANCE, lease
        from ..pipeline_run import Hooks, run_once

        if chosen.dry_run:
            tables.create(spark, settings)
            for found in find(spark, settings, **selection):
                sys.stdout.write(f"{found.table}: {found.rows:,} rows\n")
            return 0
        is_complete, stop = True, threading.Event()
        held = partial(
            lease, spark, settings, purpose="forget", on_loss=stop.set, waiting=say
        )
        with held() as run, held(name=MAINTENANCE) as maintenance:

            def check() -> None:
                run.check()
                maintenance.check()

            run_once(
                spark,
                settings,
                stop=stop,
                steps=("refine",),
                hooks=Hooks(check=check),
            )
            check()
            discard(spark, settings)
            for erased in erase(spark, settings, **selection, check=check):
                sys.stdout.write(f"{erased}\n")
                sys.stdout.flush()
                is_complete = is_complete and erased.is_complete
    say(HINT)
    return 0 if is_complete else EXIT_BROKEN
