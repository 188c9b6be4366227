"""What the ledger relay's dispatcher asks of the page reader, and the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...message.record import KeyToRead, Record, Sweep


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """
    Asks for rows of the table.

    Without a limit and keys it only asks which history the table has.
    """

    run: int
    """The position and gaps are kept for one run, which starts from the head."""
    limit: int = 0
    """Rows to read at most; 0 reads none."""
    keys: Sequence[KeyToRead] = ()
    """Blocked keys whose rows to read, before the rest."""
    sweep: Sweep | None = None
    """A repair scan, in place of the next rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The answer to one request."""

    request: PageRequest
    of_keys: Sequence[Record] = ()
    """Rows of the blocked keys, in id order; keys without a row here may have some
    behind the last one."""
    unseen: int = 0
    """The lowest id that may be committed later."""
    records: Sequence[Record] = ()
    """The rest, in id order."""
    history: str = ""
    """Which history of the database the rows are of."""
    retry_at: float | None = None
    """Monotonic seconds of the next attempt, when the table could not be read."""
