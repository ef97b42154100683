"""Metrics: what they are called is data, what they are worth is kept here, and how they are told is
`prometheus_client`'s.

A `Measure` says once what is measured; pages and checks are made of it. A `Meter` holds the numbers
of one service of one process: nothing is global, because several services may share a process.
What has to be asked for (rows of a table, the state of a consumer) is a `Source`: it is asked when
somebody scrapes, at most once in a while, and one that does not answer in time is left out and
said so; what it said before would only deceive.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from headway_clock import monotonic
from headway_tracing.log import get_logger
from msgspec import Struct
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

log = get_logger(__name__)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# From a few milliseconds to a few minutes.
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)

Labels = tuple[str, ...]


class Measure(Struct, frozen=True, kw_only=True):
    """One thing that is measured; `buckets` are those of a histogram."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    description: str
    labels: Labels = ()
    buckets: tuple[float, ...] = ()


def counter(name: str, description: str, *labels: str) -> Measure:
    """Something that is counted since the process began."""
    return Measure(name=name, kind="counter", description=description, labels=labels)


def gauge(name: str, description: str, *labels: str) -> Measure:
    """Something that rises and falls."""
    return Measure(name=name, kind="gauge", description=description, labels=labels)


def histogram(name: str, description: str, *labels: str) -> Measure:
    """Times, by how long they are, in seconds."""
    return Measure(
        name=name, kind="histogram", description=description, labels=labels, buckets=SECONDS
    )


Readings = Mapping[Measure, Mapping[Labels, float]]


class Source(Struct, frozen=True, kw_only=True):
    """Where the values of gauges are asked for: all of its measures at once."""

    name: str
    measures: tuple[Measure, ...]
    ask: Callable[[], Awaitable[Readings]]


class Meter(Collector):
    """The numbers of one service."""

    def __init__(self, measures: Iterable[Measure], *, answers: Measure | None = None) -> None:
        self._known = {one.name: one for one in measures}
        # Whether each source answered the last time it was asked.
        self._answers = answers
        self._numbers: dict[Measure, dict[Labels, Any]] = {
            one: {} for one in [*self._known.values(), *([answers] if answers else [])]
        }
        self._readers: list[Callable[[], Readings]] = []
        self._sources: list[_Asked] = []

    def add(self, measure: Measure, *labels: str, amount: float = 1) -> None:
        """Count something."""
        found = self._numbers[measure]
        found[labels] = found.get(labels, 0) + amount

    def observe(self, measure: Measure, seconds: float, *labels: str) -> None:
        """Note how long something took; a clock that was set back makes no time negative."""
        found = self._numbers[measure]
        if labels not in found:
            found[labels] = _Spread(measure.buckets)
        found[labels].add(max(0.0, seconds))

    def show(self, readings: Readings) -> None:
        """Replace the values of gauges."""
        for measure, values in readings.items():
            self._numbers[measure] = dict(values)

    def read_from(self, reader: Callable[[], Readings]) -> None:
        """Have gauges read whenever somebody scrapes, from what is at hand."""
        self._readers.append(reader)

    def ask(self, source: Source, *, at_most_every: float, patience: float = 2.0) -> None:
        """Have gauges asked for whenever somebody scrapes, but not too often."""
        self._sources.append(_Asked(source, at_most_every, patience))

    async def refresh(self) -> None:
        """Read and ask whatever is not fresh; never raises for a source that is away."""
        for reader in self._readers:
            self.show(reader())
        await asyncio.gather(*(one.refresh() for one in self._sources))
        for one in self._sources:
            for measure in one.source.measures:
                self._numbers[measure] = dict(one.readings.get(measure, {}))
        if self._answers is not None:
            self._numbers[self._answers] = {
                (one.source.name,): float(one.answered) for one in self._sources
            }

    def collect(self) -> Iterator[Metric]:
        """All numbers, as `prometheus_client` takes them."""
        for measure, values in self._numbers.items():
            yield _family(measure, values)

    def stop(self) -> None:
        """Ask nobody any more."""
        for one in self._sources:
            one.stop()


async def scrape(meters: Sequence[Meter]) -> str:
    """The numbers of several meters in Prometheus' text format."""
    await asyncio.gather(*(one.refresh() for one in meters))
    registry = CollectorRegistry(auto_describe=False)
    for one in meters:
        registry.register(one)
    return generate_latest(registry).decode()


class _Spread:
    """How many times were how long."""

    def __init__(self, limits: tuple[float, ...]) -> None:
        self._limits = limits
        self._counts = [0] * (len(limits) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        self._counts[bisect_left(self._limits, seconds)] += 1
        self.total += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """How many were no longer than each limit."""
        found, so_far = [], 0
        names = [*(f"{limit:g}" for limit in self._limits), "+Inf"]
        for name, count in zip(names, self._counts, strict=True):
            so_far += count
            found.append((name, float(so_far)))
        return found


class _Asked:
    """A source, with what it said last."""

    def __init__(self, source: Source, at_most_every: float, patience: float) -> None:
        self.source = source
        self.readings: Readings = {}
        self.answered = False
        self._at_most_every = at_most_every
        self._patience = patience
        self._asked_at: float | None = None
        self._told: str | None = None
        self._asking: asyncio.Future[Readings] | None = None

    async def refresh(self) -> None:
        """Ask unless it was asked lately; a question that hangs is not asked again meanwhile."""
        now = monotonic()
        if self._asked_at is not None and now - self._asked_at < self._at_most_every:
            return
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self.source.ask())
        await asyncio.wait({self._asking}, timeout=self._patience)
        self._asked_at = monotonic()
        trouble = self._trouble(self._asking)
        if trouble and trouble != self._told:
            log.warning("metrics source unavailable", source=self.source.name, error=trouble)
        self._told = trouble
        self.answered = trouble is None
        self.readings = self._asking.result() if self.answered else {}

    def _trouble(self, asking: "asyncio.Future[Readings]") -> str | None:
        """Why there is no answer."""
        if not asking.done():
            return f"no answer within {self._patience:g} s"
        error = asking.exception()
        return None if error is None else f"{type(error).__name__}: {error}"

    def stop(self) -> None:
        if self._asking is not None:
            self._asking.cancel()


def _family(measure: Measure, values: Mapping[Labels, Any]) -> Metric:
    name, description, labels = measure.name, measure.description, measure.labels
    match measure.kind:
        case "counter":
            counted = CounterMetricFamily(name, description, labels=labels)
            for key, value in _or_zero(measure, values):
                counted.add_metric(key, value)
            return counted
        case "gauge":
            shown = GaugeMetricFamily(name, description, labels=labels)
            for key, value in values.items():
                shown.add_metric(key, value)
            return shown
        case "histogram":
            spread = HistogramMetricFamily(name, description, labels=labels)
            for key, value in values.items():
                spread.add_metric(key, buckets=value.buckets(), sum_value=value.total)
            return spread


def _or_zero(measure: Measure, values: Mapping[Labels, float]) -> Iterable[tuple[Labels, float]]:
    """A counter without labels is there before it has counted: its rate needs a beginning."""
    return values.items() if values or measure.labels else [((), 0.0)]
