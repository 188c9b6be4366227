"""
Retries a write when another writer has committed to the same table first.

Delta lets two writers work at the same time and refuses the second commit if
it depends on files that the first has replaced. Every write of the pipeline
may be repeated: appends carry the number of their batch, marks only rise, old
rows are deleted once, and tables are created only if they do not exist.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Final, TypeVar

ATTEMPTS: Final = 10
"""Attempts before a conflict is raised as an error."""

RETRY_BACKOFF: Final = 0.5
"""Seconds before the second attempt; grows by this much with each attempt."""

_Value = TypeVar("_Value")

# Not DELTA_CONCURRENT_TRANSACTION: that means two pipelines on one lake. A table
# that another one is about to create has files, and no log of them yet.
_CONFLICT: Final = re.compile(
    r"DELTA_(CONCURRENT_(APPEND|WRITE|DELETE_READ|DELETE_DELETE)"
    r"|PROTOCOL_CHANGED|METADATA_CHANGED|CREATE_TABLE_WITH_NON_EMPTY_LOCATION)"
)


def is_conflict(error: Exception) -> bool:
    """Whether another writer committed first; the class differs between sessions."""
    return _CONFLICT.search(str(error)) is not None


def retry_conflicts(work: Callable[[], _Value], *, attempts: int = ATTEMPTS) -> _Value:
    """
    Call `work` until it commits without a conflict, and return its result.

    Args:
        work: Must be repeatable; a failed attempt leaves nothing visible.
        attempts: The conflict of the last attempt is raised unchanged.
    """
    for attempt in range(1, attempts):
        try:
            return work()
        except Exception as error:
            if not is_conflict(error):
                raise
        time.sleep(RETRY_BACKOFF * attempt)
    return work()
