"""The targets, and figures compared with them. Pure: figures in, rows out."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# The values of each repetition, by figure and system; `None` if one failed.
Figures = Mapping[str, Mapping[str, Sequence[float | None]]]
HEADWAY = "Headway"


@dataclass(frozen=True)
class Target:
    """A figure of Headway, or its ratio to a peer's or to another figure."""

    title: str
    figure: str
    must: float
    goal: float | None = None
    at_most: bool = False
    unit: str = ""
    peer: str | None = None
    divisor: str | None = None

    def measured(self, figures: Figures) -> float | None:
        """Return the median of the repetitions, or of their ratios; `None` if not measured."""
        if self.peer is None and self.divisor is None:
            return median(figures, self.figure, HEADWAY)
        own = figures.get(self.figure, {}).get(HEADWAY, ())
        return ratio(
            own, figures.get(self.divisor or self.figure, {}).get(self.peer or HEADWAY, ())
        )

    def meets(self, value: float, bound: float) -> bool:
        return value <= bound if self.at_most else value >= bound

    def verdict(self, value: float | None) -> str:
        if value is None:
            return "not measured"
        if self.goal is not None and self.meets(value, self.goal):
            return "goal met"
        return "met" if self.meets(value, self.must) else "not met"


TARGETS = (
    Target("drain ÷ pgqueuer's, one worker", "drain", 0.5, 1.0, peer="pgqueuer"),
    Target("drain ÷ taskiq-nats', one worker", "drain", 1.0, 2.0, peer="taskiq-nats"),
    Target("drain ÷ oban-py's, one worker", "drain", 1.0, 2.0, peer="oban-py"),
    Target("drain with two workers ÷ with one", "drain_two", 1.0, divisor="drain"),
    Target("drain of 20 ms jobs, two workers ÷ one", "sleeping_two", 1.0, 1.8, divisor="sleeping"),
    Target("10,000 due at once: last body starts after", "burst", 3, 2, at_most=True, unit="s"),
    Target("trigger → body, idle, p50", "latency_p50", 10, 5, at_most=True, unit="ms"),
    Target("trigger → body, idle, p99", "latency_p99", 30, 15, at_most=True, unit="ms"),
    Target("drain with 1M finished runs ÷ empty", "growth_1000000", 0.9, 0.95),
    Target("drain with 5M finished runs ÷ empty", "growth_5000000", 0.9, 0.95),
    Target("tick with 1M manifests ÷ with 10k, 200 due", "tick", 1.5, 1.2, at_most=True),
    Target("`headway verify`, events a second", "verify", 50_000, 100_000),
    Target("`headway up` to first fire, fresh folder", "up", 5, 3, at_most=True, unit="s"),
    Target("a run's processor time", "run_processor_us", 250, at_most=True, unit="µs"),
    Target("a run's row operations", "run_row_operations", 6, at_most=True),
    Target("a run's WAL", "run_wal_bytes", 2_000, at_most=True, unit="bytes"),
    Target("a run's messages", "run_messages", 0.2, at_most=True),
)
# Figures without a target, and those that the peers have, too.
OTHERS = {
    "drain": "drain, one worker, runs a second",
    "drain_two": "drain, two workers, runs a second",
    "sleeping": "drain of 20 ms jobs, one worker with 50 slots, runs a second",
    "sleeping_two": "drain of 20 ms jobs, two workers, runs a second",
    "enqueue": "enqueue in bulk, jobs a second",
    "latency_p50": "one job on an idle system, p50, ms",
    "latency_p99": "one job on an idle system, p99, ms",
    "idle_processor": "idle with 10,000 manifests, % of a core",
    "idle_statements": "idle with 10,000 manifests, statements a second",
    "workers_processor": "1,000 idle workers, % of a core",
    "workers_statements": "1,000 idle workers, statements a second",
}


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which this share of the values lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def median(figures: Figures, figure: str, system: str) -> float | None:
    values = [value for value in figures.get(figure, {}).get(system, ()) if value is not None]
    return statistics.median(values) if values else None


def ratio(values: Sequence[float | None], divisors: Sequence[float | None]) -> float | None:
    """Return the median ratio of values that were measured in the same repetition."""
    pairs = zip(values, divisors, strict=False)
    ratios = [value / divisor for value, divisor in pairs if value is not None and divisor]
    return statistics.median(ratios) if ratios else None


def shown(value: float | None, unit: str = "") -> str:
    """Write a number with as many digits as say something."""
    if value is None:
        return "-"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    number = f"{value:,.{digits}f}"
    if "." in number:
        number = number.rstrip("0").rstrip(".")
    return f"{number} {unit}".rstrip()


def target_rows(figures: Figures) -> list[tuple[str, ...]]:
    """Return each target with its figure; those of 5M runs only if they were measured."""
    rows = []
    for target in TARGETS:
        value = target.measured(figures)
        if value is None and target.figure == "growth_5000000":
            continue
        bounds = (shown(target.must, target.unit), shown(target.goal, target.unit))
        rows.append((target.title, shown(value, target.unit), *bounds, target.verdict(value)))
    return rows


def system_rows(figures: Figures) -> list[tuple[str, ...]]:
    """Return the other figures, with a column for each system."""
    systems = systems_of(figures)
    return [
        (title, *(shown(median(figures, figure, system)) for system in systems))
        for figure, title in OTHERS.items()
        if figure in figures
    ]


def systems_of(figures: Figures) -> list[str]:
    """Return all systems that were measured, Headway first."""
    return list(dict.fromkeys([HEADWAY, *(name for found in figures.values() for name in found)]))


def as_markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Make a table whose first column is text; it is readable on a terminal, too."""
    widths = [max(len(row[column]) for row in [heads, *rows]) for column in range(len(heads))]
    aligned = [
        "| " + " | ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) + " |"
        for row in [heads, *rows]
    ]
    line = "|" + "|".join(
        ["-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:])]
    )
    return [aligned[0], line + "|", *aligned[1:]]


def summary(document: Mapping[str, Any]) -> list[str]:
    """Make the tables of a benchmark, and name what failed."""
    figures = document["figures"]
    lines = as_markdown(("target", "measured", "must", "goal", "verdict"), target_rows(figures))
    lines += ["", *as_markdown(("median", *systems_of(figures)), system_rows(figures))]
    failures = [f"- failed: {failure}" for failure in document["failures"]]
    return [*lines, "", *failures] if failures else lines
