"""
Plays one history; what the tests and `python -m tests.simulation` call.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from traceback import format_exception
from typing import Final
from unittest.mock import patch

from django_outbox.relay import dispatcher, gaps

from . import timing
from .clusters_world import ClustersWorld
from .failovers import FailoverWorld
from .ledger_world import LedgerWorld
from .promises import Broken
from .remembered import RememberedWorld
from .shards_world import ShardsWorld
from .world import Outcome, World

WORLDS: Final = {
    "at-least-once": World,
    "marks-in-memory": RememberedWorld,
    "pipelined": RememberedWorld,
    "failover": FailoverWorld,
    "exactly-once": LedgerWorld,
    "several-clusters": ClustersWorld,
    "paused": RememberedWorld,
    "paused-exactly-once": LedgerWorld,
    "shards": ShardsWorld,
    "shards-exactly-once": ShardsWorld,
}
"""By the relay, as in `plan.DELIVERIES`."""


def play(
    seed: int, delivery: str = "at-least-once", *, is_tracing: bool = False
) -> Outcome:
    """Play the history of a seed to its end, or to the first broken promise."""
    kind = WORLDS[delivery]
    world = kind(kind.planned(seed, delivery), is_tracing=is_tracing)
    with (
        _silence(),
        patch.object(gaps, "MAX_GAPS", world.plan.max_gaps),
        patch.object(dispatcher, "LOOK_INTERVAL", timing.LOOK_INTERVAL),
    ):
        try:
            world.live()
        except Broken as error:
            world.outcome.broken = str(error)
        except Exception as error:
            world.outcome.broken = f"P-ALIVE: {type(error).__name__}: {error}"
            world.outcome.trace += format_exception(error)
        finally:
            world.threads.close()
    return world.outcome


@contextmanager
def _silence() -> Iterator[None]:
    """Keep the warnings of ten thousand disasters out of the log."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
