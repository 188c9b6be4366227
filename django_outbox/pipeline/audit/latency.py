"""
Latencies from the row to the topic, as a histogram.

Histograms can be added up over hours and topics, percentiles cannot, and they
stay small whatever the number of messages. Each bucket is 9 % wider than the
one before (eight per doubling), so a percentile is at most that far off.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column

PER_DOUBLING: Final = 8
"""Buckets between a latency and its double."""


def latency() -> Column:
    """
    Return milliseconds from a record's `created_at` to its `timestamp`.

    The first is the database's clock, the second Kafka's. Negative differences
    count as 0. Null for a record without a creation time.
    """
    taken = F.unix_millis("timestamp") - F.unix_micros("created_at") / 1000
    return F.when(taken < 0, 0.0).otherwise(taken)


def bucket(milliseconds: Column) -> Column:
    """Return the bucket number of a latency; 0 up to 1 ms; null for null."""
    number = F.ceil(F.log2(milliseconds) * PER_DOUBLING).cast("int")
    return F.when(milliseconds <= 1, 0).otherwise(number)


def milliseconds(bucket: int) -> float:
    """Return the upper end of a bucket."""
    return float(2 ** (bucket / PER_DOUBLING))


def percentile(buckets: Counter[int], share: float) -> float | None:
    """Return the latency in ms that this share stays within; None without messages."""
    rank = math.ceil(buckets.total() * share)
    for number in sorted(buckets):
        rank -= buckets[number]
        if rank <= 0:
            return milliseconds(number) if buckets.total() else None
    return None
