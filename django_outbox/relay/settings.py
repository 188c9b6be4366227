"""The amounts and the timing of a relay."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from ..message.retry import RetryPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaySettings:
    """How often and how long, for either relay. Durations are seconds."""

    busy_interval: float
    """After a page that had rows but was not full."""
    idle_interval: float
    """Between two pages of an empty table, at most."""
    retry: RetryPolicy
    page_bytes: int
    """Values of one page of the table, but for its last record; while more than that
    is read and not settled, no further page is read."""
    this_cluster: int = 0
    """This cluster, whose records go first."""
    quiet: float = 0.0
    """A takeover is over when it has found nothing for so long; for so long the ledger
    relay keeps away when the origin is back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchSettings(RelaySettings):
    """How much MP/R does."""

    max_in_flight: int
    """W: records produced and not settled."""
    mark_batch: int
    """Rows that one mark claims at most."""
    marks_in_memory: bool = False
    """Whether a sweep has to find what marks in memory may have passed."""
    max_in_flight_per_key: int = 1
    """Records of one key produced and not settled; 0: any number."""
    delivery_timeout: float = inf
    """Seconds after which a record that is not acknowledged has failed; with any
    number of a key in flight, this is not left to the producer."""
