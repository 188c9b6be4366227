"""
What an audit found: counts, latencies, examples, and what it compared.

A `Report` has no opinion: it does not know which counts are acceptable.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from .latency import milliseconds, percentile

OF_MESSAGES: Final = (
    *("lost", "unexpected", "copies", "altered"),
    *("lake_lost", "lake_copies", "overdue"),
)
"""Problems of single messages."""

IN_TRANSIT: Final = ("pending", "behind")
"""Messages that have not yet arrived in the topic, or in the lake."""

WRONG: Final = (
    *(*OF_MESSAGES, "disorder"),
    *("split_keys", "latest_copies", "latest_stale"),
)
"""All problems; the last three are of keys."""

COUNTS: Final = (*WRONG, *IN_TRANSIT)
"""All counts but the number of messages."""

JUDGED: Final = ("loss_judged", "loss_unknown", "keyed", "content_judged", "due")
"""
How much could be judged.

`loss_judged`: messages that the archive has, or would have to have.
`loss_unknown`: messages in the topic of which the database says nothing.
`keyed`: messages with a key. `content_judged`: messages with a second copy to
compare with. `due`: messages that are in the lake, or have to be.
"""

MESSAGE_COUNTS: Final = ("messages", *OF_MESSAGES, *IN_TRANSIT, *JUDGED)
"""All counts of single messages."""

SPAN: Final = {"oldest": min, "newest": max, "oldest_in_transit": min}
"""Creation times of a report, and how two of them become one."""

PERCENTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
"""Percentiles of the latencies, by their names in JSON and table."""

TABLE_HEAD: Final = (
    *("source", "topic", "messages", *IN_TRANSIT),
    *(f"{name} ms" for name in PERCENTILES),
    "wrong",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What an audit compared; free of secrets."""

    topics: tuple[str, ...] = ()
    """Names of the topics, or one regular expression."""
    databases: tuple[str, ...] = ()
    """Host, port and name of each database."""
    lake: str = ""
    tables: tuple[str, ...] = ()
    """Tables of the databases and of the lake."""
    since: datetime | None = None
    """Only messages created at or after this time; None for all."""


@dataclass
class Part:
    """The counts of one source and topic, in one hour or in total."""

    counts: Counter[str] = field(default_factory=Counter)
    """By the names in `COUNTS` and `JUDGED`, and `messages`."""
    latencies: Counter[int] = field(default_factory=Counter)
    """Number of messages by latency bucket."""

    def __iadd__(self, other: Part) -> Part:
        self.counts.update(other.counts)
        self.latencies.update(other.latencies)
        return self

    def as_row(self) -> dict[str, Any]:
        """Return all counts by name, and `latency_ms` by percentile, or None."""
        latencies = {
            name: round(value, 1)
            for name, share in PERCENTILES.items()
            if (value := percentile(self.latencies, share)) is not None
        }
        counts = {name: self.counts[name] for name in ("messages", *COUNTS)}
        return {**counts, "latency_ms": latencies or None}


class Report:
    """Counts and latencies for each source, topic and hour."""

    def __init__(self, compared: Compared | None = None) -> None:
        self._parts: defaultdict[tuple[str, str, datetime | None], Part] = defaultdict(
            Part
        )
        self.compared = compared or Compared()
        self.examples: dict[str, list[int]] = {}
        """The lowest ids for each count that is not 0."""
        self.oldest: datetime | None = None
        """Creation time of the oldest message, in UTC; None without messages."""
        self.newest: datetime | None = None
        """Creation time of the newest message."""
        self.oldest_in_transit: datetime | None = None
        """Creation time of the oldest message that is pending, behind or overdue."""

    def add(self, row: Mapping[str, Any]) -> None:
        """
        Add counts by name for a `source`, a `topic` and optionally an `hour`.

        The creation times in `SPAN` may be missing or None.
        """
        counts = {name: row.get(name) or 0 for name in ("messages", *COUNTS, *JUDGED)}
        self._part(row).counts.update(counts)
        for name, pick in SPAN.items():
            if time := row.get(name):
                setattr(self, name, pick(time, getattr(self, name) or time))

    def add_latency(self, row: Mapping[str, Any]) -> None:
        """Add the `count` of a `latency_bucket` for a source, topic and hour."""
        self._part(row).latencies[row["latency_bucket"]] += row["count"]

    def _part(self, row: Mapping[str, Any]) -> Part:
        return self._parts[row["source"], row["topic"], row.get("hour")]

    def total(self, name: str) -> int:
        """Return the total of one count."""
        return sum(part.counts[name] for part in self._parts.values())

    def whole(self) -> Part:
        """Return the sum of all parts."""
        whole = Part()
        for part in self._parts.values():
            whole += part
        return whole

    def parts(self) -> list[dict[str, Any]]:
        """Return a row of counts for each source, topic and hour (ISO 8601)."""
        return [
            {
                "source": source,
                "topic": topic,
                "hour": hour.isoformat() if hour else None,
                **part.as_row(),
            }
            for (source, topic, hour), part in sorted(
                self._parts.items(), key=lambda item: str(item[0])
            )
        ]

    def by_topic(self) -> dict[tuple[str, str], Part]:
        """Return the parts by source and topic, sorted."""
        topics: defaultdict[tuple[str, str], Part] = defaultdict(Part)
        for (source, topic, _), part in self._parts.items():
            topics[source, topic] += part
        return dict(sorted(topics.items()))

    def by_hour(self) -> dict[datetime, Part]:
        """Return the parts by hour, sorted, without parts that have no hour."""
        hours: defaultdict[datetime, Part] = defaultdict(Part)
        for (_, _, hour), part in self._parts.items():
            if hour:
                hours[hour] += part
        return dict(sorted(hours.items()))

    def rows(self) -> list[tuple[str, ...]]:
        """Return the cells under `TABLE_HEAD`."""
        rows = []
        for place, part in self.by_topic().items():
            counts, latencies = part.counts, part.as_row()["latency_ms"] or {}
            found = [f"{name} {counts[name]}" for name in WRONG if counts[name]]
            rows.append(
                (
                    *place,
                    *(str(counts[name]) for name in ("messages", *IN_TRANSIT)),
                    *(str(latencies.get(name, "-")) for name in PERCENTILES),
                    ", ".join(found) or "nothing",
                )
            )
        return rows


def shares(latencies: Counter[int]) -> list[tuple[float, float]]:
    """Return the cumulative distribution: pairs of ms and share (0 to 1)."""
    pairs, sofar = [], 0
    for bucket in sorted(latencies):
        sofar += latencies[bucket]
        pairs.append((milliseconds(bucket), sofar / latencies.total()))
    return pairs
