"""
Progress of the queries: a live line, plain or JSON lines, Prometheus text.

`Batches` yields a `Reading` for each batch that a query has finished; an
observer shows it.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeAlias

from . import textfile

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from .lake.batch_writer import BatchCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A finished batch of a query."""

    query: str
    """`ingest` or `refine`."""
    batch: int
    """Number of the batch."""
    rows: int
    """Rows that it read."""
    seconds: float
    """Duration."""
    rate: float
    """Rows per second."""
    lag: int | None
    """Offsets between the batch and the end of the topics, transaction markers
    included; None when the source is not Kafka."""
    copies: int | None = None
    """Duplicates in the batch; None when they were not counted here: by ingest, and
    when the query runs in a Connect server."""
    late: int | None = None
    """Messages that came out of order."""
    quarantined: int | None = None
    """Records without an outbox's headers, or with an invalid value."""

    @property
    def time_left(self) -> float | None:
        """Seconds until the lag is gone at this rate."""
        return self.lag / self.rate if self.lag and self.rate else None


COUNTED: Final = ("copies", "late", "quarantined")
"""What refine counts in each batch."""

STEPS: Final = ("ingest", "refine")
"""The queries of a run, in order."""

Observer: TypeAlias = Callable[[Reading], None]
"""Called on the main thread, for each batch in order."""


class Batches:
    """Yields each finished batch of one query once."""

    def __init__(self, query: StreamingQuery, counts: dict[int, BatchCounts]) -> None:
        """Keep the query, and where the counts of its batches appear."""
        self._query = query
        self._counts = counts
        self._last = ""

    def new(self) -> Iterator[Reading]:
        """Yield the batches that finished since the last call."""
        for progress in self._query.recentProgress:
            # Attributes: the mapping is empty on a Connect client.
            if progress.timestamp > self._last:
                self._last = progress.timestamp
                if progress.numInputRows:
                    yield read(progress, self._counts.pop(progress.batchId, None))


def read(progress: Any, counts: BatchCounts | None = None) -> Reading:
    """Convert Spark's progress of one batch."""
    seconds = progress.batchDuration / 1000
    return Reading(
        query=progress.name,
        batch=progress.batchId,
        rows=progress.numInputRows,
        seconds=seconds,
        rate=progress.numInputRows / seconds if seconds else 0.0,
        lag=_lag(progress.sources[0]),
        **{name: getattr(counts, name) for name in COUNTED if counts},
    )


def _lag(source: Any) -> int | None:
    """Offsets in Kafka beyond the batch; None for other sources."""
    if not source.description.startswith("KafkaV2"):
        return None
    newest, reached = _offsets(source.latestOffset), _offsets(source.endOffset)
    return sum(max(0, end - reached.get(at, end)) for at, end in newest.items())


def _offsets(text: str | None) -> dict[tuple[str, str], int]:
    # Spark writes null for a batch that it repeats.
    topics = json.loads(text or "null") or {}
    return {
        (topic, partition): offset
        for topic, partitions in topics.items()
        for partition, offset in partitions.items()
    }


class JsonLines:
    """Observer that writes each reading as one JSON object and flushes it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __call__(self, reading: Reading) -> None:
        line = {
            "event": "batch",
            "time": datetime.now(UTC).isoformat(),
            **asdict(reading),
            "time_left": reading.time_left,
        }
        self._stream.write(json.dumps(line) + "\n")
        self._stream.flush()


class LiveLine:
    """Observer that updates one line of a terminal with both queries."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._rows: defaultdict[str, int] = defaultdict(int)
        self._readings: dict[str, Reading] = {}
        self._found = Counter[str]()

    def __call__(self, reading: Reading) -> None:
        self._rows[reading.query] += reading.rows
        self._readings[reading.query] = reading
        self._found.update({name: getattr(reading, name) or 0 for name in COUNTED})
        parts = [self._describe(name) for name in self._readings]
        self._stream.write("\r\x1b[K" + "   ".join(parts))
        self._stream.flush()

    def close(self) -> None:
        """Leave the line as it is."""
        if self._readings:
            self._stream.write("\n")

    def _describe(self, query: str) -> str:
        reading = self._readings[query]
        text = f"{query} {self._rows[query]:,} rows {reading.rate:,.0f}/s"
        if reading.lag is not None:
            text += f" lag {reading.lag:,}"
        if (left := reading.time_left) is not None:
            text += f" left {left:,.0f} s"
        if reading.copies is not None:
            text += "".join(f" {name} {n:,}" for name, n in self._found.items() if n)
        return text


class PlainLines:
    """Observer that writes a line of text per batch, for output without a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __call__(self, reading: Reading) -> None:
        time = datetime.now(UTC).isoformat(timespec="seconds")
        lag = "" if reading.lag is None else f", lag {reading.lag:,}"
        found = "".join(
            f", {count:,} {name}"
            for name in COUNTED
            if (count := getattr(reading, name))
        )
        self._stream.write(
            f"{time} {reading.query}: batch {reading.batch}, {reading.rows:,} rows"
            f" in {reading.seconds:.1f} s{lag}{found}\n"
        )
        self._stream.flush()


class MetricsFile:
    """
    Observer that writes the metrics of the queries to a file.

    It goes on with the values of a file that is there. If each run counted from 0,
    Prometheus could not see what the next one has counted.

    Args:
        queries: Those whose counters begin at 0 in a new file.
    """

    def __init__(self, path: Path, *, queries: Sequence[str] = ()) -> None:
        self._path = path
        self._values = defaultdict(dict, textfile.read(path))
        for query in queries:
            counted = COUNTED if query == STEPS[-1] else ()
            for name in ("rows", "batches", *counted):
                self._values[f"{name}_total"].setdefault(query, 0)
        textfile.write(path, self._values)

    def __call__(self, reading: Reading) -> None:
        values, query = self._values, reading.query
        counted = {f"{name}_total": getattr(reading, name) for name in COUNTED}
        more = {"rows_total": reading.rows, "batches_total": 1, **counted}
        for name, count in more.items():
            if count is None:
                values[name].pop(query, None)
            else:
                values[name][query] = values[name].get(query, 0) + count
        values["batch_seconds"][query] = reading.seconds
        values["last_batch_timestamp_seconds"][query] = datetime.now(UTC).timestamp()
        if reading.lag is not None:
            values["lag_records"][query] = reading.lag
        textfile.write(self._path, values)
