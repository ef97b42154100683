"""Metrics: their definitions as data, and their values for `prometheus_client`.

A `Measure` defines a metric once; the documentation and the checks are made from it. A `Meter`
holds the values of one service. Nothing is global, because several services may share a process.
A `Source` (rows of a table, the state of a consumer) is read at a scrape, at most once in a while.
A source that does not answer in time is left out and reported; its old values would mislead.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, Literal

from headway_clock import monotonic
from headway_tracing.log import get_logger
from msgspec import Struct
from prometheus_client import CollectorRegistry, core, generate_latest
from prometheus_client.registry import Collector

log = get_logger(__name__)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# From a few milliseconds to a few minutes.
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)

Labels = tuple[str, ...]
Kind = Literal["counter", "gauge", "histogram"]


class Measure(Struct, frozen=True, kw_only=True):
    """The definition of a metric; histograms are of seconds."""

    name: str
    kind: Kind
    description: str
    labels: Labels = ()


def _define(kind: Kind, name: str, description: str, *labels: str) -> Measure:
    return Measure(name=name, kind=kind, description=description, labels=labels)


counter = partial(_define, "counter")  # a number that only rises while the process runs
gauge = partial(_define, "gauge")
histogram = partial(_define, "histogram")


class Sample(Struct, frozen=True):
    """Events to count, or with `seconds` a duration to observe; noted in a transaction."""

    measure: Measure
    labels: Labels
    seconds: float | None = None
    amount: int = 1


Readings = Mapping[Measure, Mapping[Labels, float]]


class Source(Struct, frozen=True, kw_only=True):
    """Values of gauges that are read together."""

    name: str
    measures: tuple[Measure, ...]
    ask: Callable[[], Awaitable[Readings]]


class Meter(Collector):
    """The metrics of one service; `answers` is the gauge of sources that answered."""

    def __init__(self, measures: Iterable[Measure], *, answers: Measure | None = None) -> None:
        self._answers = answers
        # A counter without labels starts at zero: its rate needs a first value.
        self._values: dict[Measure, dict[Labels, Any]] = {
            measure: {(): 0} if measure.kind == "counter" and not measure.labels else {}
            for measure in measures
        }
        self._readers: list[Callable[[], Readings]] = []
        self._sources: list[_CachedSource] = []

    def add(self, measure: Measure, *labels: str, amount: float = 1) -> None:
        """Add to a counter."""
        values = self._values[measure]
        values[labels] = values.get(labels, 0) + amount

    def observe(self, measure: Measure, seconds: float, *labels: str) -> None:
        """Record a duration; a negative one, after a clock was set back, counts as zero."""
        values = self._values[measure]
        if labels not in values:
            values[labels] = _Histogram()
        values[labels].add(max(0.0, seconds))

    def count(self, facts: Iterable[Any]) -> None:
        """Count the samples among the facts that were noted in a committed transaction."""
        for fact in facts:
            match fact:
                case Sample(seconds=None):
                    self.add(fact.measure, *fact.labels, amount=fact.amount)
                case Sample(seconds=float(seconds)):
                    self.observe(fact.measure, seconds, *fact.labels)

    def read_from(self, reader: Callable[[], Readings]) -> None:
        """Read gauges from memory at each scrape."""
        self._readers.append(reader)

    def ask(self, source: Source, *, at_most_every: float, patience: float = 2.0) -> None:
        """Read gauges from a source at a scrape, unless their values are recent."""
        self._sources.append(_CachedSource(source, at_most_every, patience))

    async def refresh(self) -> None:
        """Read all gauges that are not recent; never raises for an unavailable source."""
        await asyncio.gather(*(cached.refresh() for cached in self._sources))
        for reader in self._readers:
            self._values |= {measure: dict(values) for measure, values in reader().items()}
        for cached in self._sources:
            for measure in cached.source.measures:
                self._values[measure] = dict(cached.readings.get(measure, {}))
        if self._answers is not None:
            self._values[self._answers] = {
                (cached.source.name,): float(cached.answered) for cached in self._sources
            }

    def collect(self) -> Iterator[core.Metric]:
        """Yield all metrics for `prometheus_client`."""
        for measure, values in self._values.items():
            yield _family(measure, values)

    def stop(self) -> None:
        """Cancel pending reads of sources."""
        for cached in self._sources:
            cached.stop()


async def scrape(meters: Sequence[Meter]) -> str:
    """Return the metrics of several meters in the text format of Prometheus."""
    await asyncio.gather(*(meter.refresh() for meter in meters))
    registry = CollectorRegistry(auto_describe=False)
    for meter in meters:
        registry.register(meter)
    return generate_latest(registry).decode()


class _Histogram:
    """Counts of durations by bucket."""

    def __init__(self) -> None:
        self._counts = [0] * (len(SECONDS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        self._counts[bisect_left(SECONDS, seconds)] += 1
        self.total += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Return for each limit how many durations were at most that long."""
        limits = [*(f"{limit:g}" for limit in SECONDS), "+Inf"]
        return list(zip(limits, map(float, accumulate(self._counts)), strict=True))


class _CachedSource:
    """A source with its last values."""

    def __init__(self, source: Source, at_most_every: float, patience: float) -> None:
        self.source = source
        self.readings: Readings = {}
        self.answered = False
        self._at_most_every = at_most_every
        self._patience = patience
        self._read_at: float | None = None
        self._logged: str | None = None
        self._reading: asyncio.Future[Readings] | None = None

    async def refresh(self) -> None:
        """Read the source unless its values are recent; a read that hangs is not repeated."""
        if self._read_at is not None and monotonic() - self._read_at < self._at_most_every:
            return
        if self._reading is None or self._reading.done():
            self._reading = asyncio.ensure_future(self.source.ask())
        await asyncio.wait({self._reading}, timeout=self._patience)
        self._read_at = monotonic()
        problem = self._problem(self._reading)
        if problem and problem != self._logged:
            log.warning("metrics source unavailable", source=self.source.name, error=problem)
        self._logged = problem
        self.answered = problem is None
        self.readings = self._reading.result() if self.answered else {}

    def _problem(self, reading: "asyncio.Future[Readings]") -> str | None:
        if not reading.done():
            return f"no answer within {self._patience:g} s"
        error = reading.exception()
        return None if error is None else f"{type(error).__name__}: {error}"

    def stop(self) -> None:
        if self._reading is not None:
            self._reading.cancel()


def _family(measure: Measure, values: Mapping[Labels, Any]) -> core.Metric:
    name, description, labels = measure.name, measure.description, measure.labels
    if measure.kind == "histogram":
        durations = core.HistogramMetricFamily(name, description, labels=labels)
        for key, value in values.items():
            durations.add_metric(key, buckets=value.buckets(), sum_value=value.total)
        return durations
    kind = core.CounterMetricFamily if measure.kind == "counter" else core.GaugeMetricFamily
    family = kind(name, description, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family
