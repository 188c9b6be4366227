"""
Figures of a process as Prometheus metrics.

A table of figures says what each one is and how it is read. They are read at each
scrape, from values in memory, so a scrape costs neither the database nor Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric

from .endpoints import App
from .message_times import MessageTimes

SourceT = TypeVar("SourceT")

Samples: TypeAlias = Iterable[tuple[tuple[str, ...], float]]
"""The values of the figure's labels, and the figure."""

PREFIX = "django_outbox_"


@dataclass(frozen=True, slots=True)
class Figure(Generic[SourceT]):
    """One figure that is read from a source."""

    name: str
    """Without the prefix; a counter's without `_total`."""
    kind: str
    """`gauge`, `counter` or `histogram`."""
    text: str
    read: Callable[[SourceT], float | Samples | MessageTimes]
    """Returns the figure, or one for each value of the label."""
    label: str = ""
    """Empty: the figure has no label of its own."""

    @property
    def exported_name(self) -> str:
        """The name that a query uses; a histogram's without its suffixes."""
        return f"{PREFIX}{self.name}{'_total' if self.kind == 'counter' else ''}"


class Figures(Generic[SourceT]):
    """
    Exports the figures of one source.

    Args:
        figures: which figures.
        source: where they are read.
        labels: names and values of labels that all of them have.
    """

    def __init__(
        self,
        figures: Sequence[Figure[SourceT]],
        source: SourceT,
        **labels: str,
    ) -> None:
        self.registry = CollectorRegistry()
        self.app: App = make_wsgi_app(self.registry)
        """Answers a scrape."""
        self._figures = figures
        self._source = source
        self._labels = labels
        self.registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Read all figures."""
        common = tuple(self._labels.values())
        for figure in self._figures:
            name = f"{PREFIX}{figure.name}"
            labels = [*self._labels, *filter(None, [figure.label])]
            value = figure.read(self._source)
            if isinstance(value, MessageTimes):
                histogram = HistogramMetricFamily(name, figure.text, labels=labels)
                buckets, total = value.cumulated()
                histogram.add_metric(common, buckets, total)
                yield histogram
                continue
            kind = (
                CounterMetricFamily if figure.kind == "counter" else GaugeMetricFamily
            )
            family = kind(name, figure.text, labels=labels)
            samples = [((), value)] if isinstance(value, int | float) else value
            for own, number in samples:
                family.add_metric((*common, *own), number)
            yield family
