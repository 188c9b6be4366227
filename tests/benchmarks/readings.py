"""
What a benchmark reads, round by round, and what the readings come to.

Every benchmark notes into one `Book`; `report.py` writes it down. The load of
the machine is noted with each reading, since it decides what one is worth.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One figure of one side in one round."""

    benchmark: str
    case: str
    """What was asked of all sides."""
    figure: str
    side: str
    unit: str
    value: float
    load: float
    """Of the machine, over the last minute, when it was noted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """All readings of one figure of one side."""

    benchmark: str
    case: str
    figure: str
    side: str
    unit: str
    values: Sequence[float]
    loads: Sequence[float]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def percentile(self, share: float) -> float:
        """The smallest reading that so many of all do not exceed."""
        return percentile(self.values, share)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that this share of all values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


@dataclass
class Book:
    """All readings of one run, in their order."""

    readings: list[Reading] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    """What was left out, and why."""

    def note(
        self,
        benchmark: str,
        case: str,
        side: str,
        value: float,
        unit: str = "records/s",
        *,
        figure: str = "rate",
    ) -> None:
        """Note a figure and print it."""
        load = os.getloadavg()[0]
        self.readings.append(
            Reading(
                benchmark=benchmark,
                case=case,
                figure=figure,
                side=side,
                unit=unit,
                value=value,
                load=load,
            )
        )
        print(
            f"  {benchmark:<9} {case:<28} {side:<26} {figure:<22}"
            f" {shown(value):>10} {unit:<12} load {load:.1f}",
            flush=True,
        )

    def remark(self, text: str) -> None:
        """Note what a reader of the figures has to know."""
        if text not in self.remarks:
            self.remarks.append(text)
            print(f"  {text}", flush=True)

    def summaries(self) -> Iterator[Summary]:
        """Put the rounds together."""
        rounds: dict[tuple[str, str, str, str, str], list[Reading]] = {}
        for reading in self.readings:
            place = (
                *(reading.benchmark, reading.case, reading.figure),
                *(reading.side, reading.unit),
            )
            rounds.setdefault(place, []).append(reading)
        for (benchmark, case, figure, side, unit), readings in rounds.items():
            yield Summary(
                benchmark=benchmark,
                case=case,
                figure=figure,
                side=side,
                unit=unit,
                values=[reading.value for reading in readings],
                loads=[reading.load for reading in readings],
            )


def shown(value: float) -> str:
    """Write a figure with as many digits as it is worth."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
