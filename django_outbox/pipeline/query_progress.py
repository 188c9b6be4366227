"""
How far the queries are: a live line, plain or JSON lines, Prometheus text.

`harvester/process.py` asks each query for the batches that it has finished and hands a
`Reading` of each to the observers here.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One batch of a query, finished."""

    query: str
    """`ingest` or `refine`."""
    batch: int
    """Its number."""
    rows: int
    """What it has read."""
    seconds: float
    """What it took."""
    rate: float
    """Rows in a second."""
    lag: int | None
    """Records that Kafka has beyond it, markers of transactions included."""

    @property
    def time_left(self) -> float | None:
        """Seconds to the end at this rate."""
        return self.lag / self.rate if self.lag and self.rate else None


Observer: TypeAlias = Callable[[Reading], None]
"""Called on the main thread, for each batch in order."""


class Batches:
    """The finished batches of one query, each once."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._last = ""

    def new(self) -> Iterator[Reading]:
        """Those that have finished since the last call."""
        for progress in self._query.recentProgress:
            # Attributes: the mapping is empty on a Connect client.
            if progress.timestamp > self._last:
                self._last = progress.timestamp
                if progress.numInputRows:
                    yield read(progress)


def read(progress: Any) -> Reading:
    """Take what matters from Spark's progress of one batch."""
    seconds = progress.batchDuration / 1000
    return Reading(
        query=progress.name,
        batch=progress.batchId,
        rows=progress.numInputRows,
        seconds=seconds,
        rate=progress.numInputRows / seconds if seconds else 0.0,
        lag=_lag(progress.sources[0]),
    )


def _lag(source: Any) -> int | None:
    """Offsets of Kafka behind the batch; other sources have none."""
    if not source.description.startswith("KafkaV2"):
        return None
    newest, reached = _offsets(source.latestOffset), _offsets(source.endOffset)
    return sum(max(0, end - reached.get(at, end)) for at, end in newest.items())


def _offsets(text: str | None) -> dict[tuple[str, str], int]:
    # Spark writes null for a batch that it runs again.
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
    """Observer that keeps one line of a terminal, both queries in it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._rows: defaultdict[str, int] = defaultdict(int)
        self._readings: dict[str, Reading] = {}

    def __call__(self, reading: Reading) -> None:
        self._rows[reading.query] += reading.rows
        self._readings[reading.query] = reading
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
        return text


class PlainLines:
    """Observer that writes a line for people, where there is no terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __call__(self, reading: Reading) -> None:
        time = datetime.now(UTC).isoformat(timespec="seconds")
        lag = "" if reading.lag is None else f", lag {reading.lag:,}"
        self._stream.write(
            f"{time} {reading.query}: batch {reading.batch}, {reading.rows:,} rows"
            f" in {reading.seconds:.1f} s{lag}\n"
        )
        self._stream.flush()


_HELP = {
    "rows_total": ("counter", "Rows that the query has read"),
    "batches_total": ("counter", "Batches that the query has finished"),
    "batch_seconds": ("gauge", "Duration of the last batch"),
    "lag_records": ("gauge", "Records that Kafka has beyond the last batch"),
    "last_batch_timestamp_seconds": ("gauge", "When the last batch ended"),
}


class MetricsFile:
    """
    Observer that keeps Prometheus text in a file, for a textfile collector.

    The file is replaced as a whole: a scrape never sees half of it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._values: dict[str, dict[str, float]] = {name: {} for name in _HELP}

    def __call__(self, reading: Reading) -> None:
        values, query = self._values, reading.query
        for name, more in (("rows_total", reading.rows), ("batches_total", 1)):
            values[name][query] = values[name].get(query, 0) + more
        values["batch_seconds"][query] = reading.seconds
        values["last_batch_timestamp_seconds"][query] = datetime.now(UTC).timestamp()
        if reading.lag is not None:
            values["lag_records"][query] = reading.lag
        partial = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        partial.write_text(self.text(), "utf-8")
        partial.replace(self._path)

    def text(self) -> str:
        """All metrics in Prometheus' text format."""
        lines = []
        for name, by_query in self._values.items():
            kind, words = _HELP[name]
            full = f"django_outbox_pipeline_{name}"
            lines += [f"# HELP {full} {words}", f"# TYPE {full} {kind}"]
            lines += [f'{full}{{query="{q}"}} {v}' for q, v in by_query.items()]
        return "\n".join(lines) + "\n"
