"""
Two writers of one table: the one that comes second tries again.

Delta lets both work and refuses the second commit if it stands on files that
the first has replaced. `maintain.py` replaces files while `refine.py` writes,
so both go through here. What they do may be repeated: appends carry the number
of their batch, marks only rise, old rows are deleted once. And so does whoever
makes the tables: of two first runs one finds that the other has made them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Final, TypeVar

ATTEMPTS: Final = 10
"""How often a statement is tried before its conflict is an error."""

PAUSE: Final = 0.5
"""Seconds before the second attempt; before each further one as many more."""

_Value = TypeVar("_Value")

# DELTA_CONCURRENT_TRANSACTION is not among them: two pipelines on one lake.
_CONFLICT: Final = re.compile(
    r"DELTA_(CONCURRENT_(APPEND|WRITE|DELETE_READ|DELETE_DELETE)"
    r"|PROTOCOL_CHANGED|METADATA_CHANGED)"
)


def is_conflict(error: Exception) -> bool:
    """Whether another writer was quicker; only the text says so in every session."""
    return _CONFLICT.search(str(error)) is not None


def again(work: Callable[[], _Value], *, attempts: int = ATTEMPTS) -> _Value:
    """
    Do it until no other writer is quicker.

    Args:
        work: May be repeated; what an attempt did that met a conflict is
            invisible.
        attempts: After so many the conflict is raised as it is.
    """
    for attempt in range(1, attempts):
        try:
            return work()
        except Exception as error:
            # PySpark's own classes differ between sessions for this one.
            if not is_conflict(error):
                raise
        time.sleep(PAUSE * attempt)
    return work()
