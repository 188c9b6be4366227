"""
How long messages took, from their row to the topic, as counts of buckets.

Buckets can be added up over hours and topics, which percentiles cannot, and
there are few of them whatever the number of messages. Each is 9 % wider than
the one before (eight for a doubling), so a percentile is at most that far off.
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
    Milliseconds from a record's `created_at` to its `timestamp` in the topic.

    One is the database's clock, the other Kafka's; what their difference makes
    negative counts as 0. Null for a record that does not say when it was made.
    """
    taken = F.unix_millis("timestamp") - F.unix_micros("created_at") / 1000
    return F.when(taken < 0, 0.0).otherwise(taken)


def bucket(milliseconds: Column) -> Column:
    """The number of a latency's bucket; 0 for everything up to 1 ms; null of null."""
    number = F.ceil(F.log2(milliseconds) * PER_DOUBLING).cast("int")
    return F.when(milliseconds <= 1, 0).otherwise(number)


def milliseconds(bucket: int) -> float:
    """The upper end of a bucket."""
    return float(2 ** (bucket / PER_DOUBLING))


def percentile(buckets: Counter[int], share: float) -> float | None:
    """What this share of the messages took at most, in ms; None without any."""
    rank = math.ceil(buckets.total() * share)
    for number in sorted(buckets):
        rank -= buckets[number]
        if rank <= 0:
            return milliseconds(number) if buckets.total() else None
    return None
