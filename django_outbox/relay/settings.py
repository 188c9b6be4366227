"""The amounts and the timing of a relay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from ..exceptions import DeliveryFailed, RecordPoisoned
from ..message.record import Record
from ..message.retry import RetryPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaySettings:
    """How much, how often and how long, for every kind of delivery; seconds."""

    page_rows: int
    """Rows of one page; with transactions, records of one transaction at most."""
    page_bytes: int
    """Values of one page of the table, but for its last record; while more than that
    is read and not settled, no further page is read."""
    blocks: bool = False
    """Whether nothing else is decided while records are sent, as in a transaction. Then
    the page behind a full one is read meanwhile; else one is read as late as possible,
    since it shows more."""
    max_in_flight: float = inf
    """W: records produced and not settled."""
    max_in_flight_per_key: int = 0
    """Records of one key produced and not settled: 1, or 0 for any number."""
    needs_proof: bool = True
    """Whether a key has one record in flight until its partition has acknowledged one;
    a transaction needs no proof, since it is aborted as a whole."""
    delivery_timeout: float
    """After so long without an acknowledgement, a record has failed."""
    busy_interval: float
    """After a page that had rows but was not full."""
    idle_interval: float
    """Between two pages of an empty table, at most."""
    retry: RetryPolicy
    parks: Callable[[str], bool] = lambda _: True
    """Whether poison records of a topic are parked once their attempts are spent."""
    marks_in_table: bool = False
    """Whether rows are marked in the table; else a repair scan has to find what the
    leader's memory may have passed."""
    by_scans: bool = False
    """Whether each page is a scan of the whole table, as for records that are taken
    over: they become readable in another order than that of their ids."""
    this_cluster: int = 0
    """This cluster, whose records go first."""
    clusters: int = 1
    """How many there are, and so how far apart the ids of one of them are."""
    shards: int = 1
    """Into how many the keys are divided."""
    quiet: float = 0.0
    """A takeover is over when it has found nothing for so long; with exactly-once
    delivery it keeps away for so long when the origin is back."""

    def should_park(self, record: Record, error: DeliveryFailed) -> bool:
        """
        Whether this failure is the one after which a record is parked.

        Only a poison record is: its own content or destination is at fault, so that no
        retry helps until somebody changes the record, the topic or a permission.
        """
        return (
            isinstance(error, RecordPoisoned)
            and error.is_certain
            and self.retry.is_spent(record.attempts + 1)
            and self.parks(record.topic)
        )
