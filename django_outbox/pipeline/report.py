"""
What an audit found: a table for people, JSON for machines, an exit code.

`audit.py` fills a `Report`; `__main__.py` shows it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

OF_MESSAGES: Final = (
    *("lost", "unexpected", "copies", "altered"),
    *("lake_lost", "lake_copies"),
)
"""What can be wrong with a message, wherever it is."""

COUNTS: Final = (*OF_MESSAGES, "pending", "disorder", "split_keys")
"""What is counted, apart from the messages themselves."""

BROKEN: Final = (
    *("lost", "unexpected", "altered", "disorder", "split_keys"),
    *("lake_lost", "lake_copies"),
)
"""What must not be, whatever happened."""

EXIT_BROKEN: Final = 3
EXIT_COPIES: Final = 4


class Report:
    """Counts for each source, topic and hour."""

    def __init__(self) -> None:
        self._counts: defaultdict[
            tuple[str, str, datetime | None], defaultdict[str, int]
        ] = defaultdict(lambda: defaultdict(int))
        self.examples: dict[str, list[int]] = {}
        """For each count that is not 0, the ids of the first messages."""

    def add(self, row: Mapping[str, Any]) -> None:
        """Add the counts of one source and topic, of an hour if the row has one."""
        place = (row["source"], row["topic"], row.get("hour"))
        for name in ("messages", *COUNTS):
            self._counts[place][name] += row.get(name) or 0

    def total(self, name: str) -> int:
        """One count over everything."""
        return sum(counts[name] for counts in self._counts.values())

    def exit_code(self, *, max_copies: int | None = None) -> int:
        """0, 3 when something is broken, 4 when there are too many copies."""
        if any(self.total(name) for name in BROKEN):
            return EXIT_BROKEN
        if max_copies is not None and self.total("copies") > max_copies:
            return EXIT_COPIES
        return 0

    def as_json(self) -> str:
        """All counts and examples, in all and for each source, topic and hour."""
        names = ("messages", *COUNTS)
        parts = [
            {
                "source": source,
                "topic": topic,
                "hour": hour.isoformat() if hour else None,
                **{name: counts[name] for name in names},
            }
            for (source, topic, hour), counts in sorted(
                self._counts.items(), key=lambda item: str(item[0])
            )
        ]
        total = {name: self.total(name) for name in names}
        return json.dumps({"total": total, "examples": self.examples, "parts": parts})

    def as_table(self) -> str:
        """One line for each source and topic, and the examples below."""
        names = ("messages", *COUNTS)
        topics: defaultdict[tuple[str, str], list[int]] = defaultdict(
            lambda: [0] * len(names)
        )
        for (source, topic, _), counts in self._counts.items():
            line = topics[source, topic]
            topics[source, topic] = [
                n + counts[name] for n, name in zip(line, names, strict=True)
            ]
        lines: list[tuple[str, ...]] = [("source", "topic", *names)]
        lines += [(*place, *map(str, sums)) for place, sums in sorted(topics.items())]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = ["  ".join(map(str.ljust, line, widths)) for line in lines]
        text += [f"{name}: ids {ids}" for name, ids in self.examples.items()]
        return "\n".join(line.rstrip() for line in text)
