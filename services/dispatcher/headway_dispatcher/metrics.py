"""Metrics of the dispatcher.

Transactions note samples, which are counted after the commit. A scrape reads gauges: one query, and
the state of streams and consumers.
"""

from collections import defaultdict
from datetime import timedelta
from functools import partial
from typing import Any

from headway_contract import subjects
from headway_jetstream_kit import Broker
from headway_jetstream_kit.provisioning import consumer_info, stream_info
from headway_postgres_kit import Database
from headway_service_kit.metrics import Measure, Meter, Readings, Source, counter, gauge, histogram
from headway_service_kit.service import Service
from msgspec import Struct

from headway_dispatcher.settings import DispatcherSettings
from headway_dispatcher.store import metric_queries

# Counting stops here, so that a large backlog does not slow a scrape.
MOST_COUNTED = 10_000

_BOUNDED = f"Counted up to {MOST_COUNTED:,}."

SETTLED = counter(
    "headway_dispatcher_work_settled_total",
    "Settled work, by outcome; the job is empty for work that was cancelled before it arrived.",
    *("group", "job", "outcome"),
)
RETRIES = counter(
    "headway_dispatcher_retries_total",
    "Failed runs whose work is retried; only the reason `retry` counts as an attempt.",
    *("group", "job", "reason"),
)
DEAD_LETTERS = counter(
    "headway_dispatcher_dead_letters_total",
    "Created dead letters, by reason.",
    *("group", "job", "reason"),
)
START_LATENESS = histogram(
    "headway_dispatcher_start_lateness_seconds",
    "Time from the due time of a schedule to the start of the body, of first attempts; includes "
    "jitter.",
    "group",
)
ADMITTED = counter("headway_dispatcher_runs_admitted_total", "Runs that the gate admitted.")
EVENTS_REFUSED = counter(
    "headway_dispatcher_events_refused_total", "Refused events of workers, by reason.", "reason"
)
REVOKED = counter(
    "headway_dispatcher_leases_revoked_total",
    "Leases that the reaper revoked: of silent workers, of unclaimed orders, and of runs past "
    "their timeout and grace.",
    "reason",
)
WAITING = gauge(
    "headway_dispatcher_waiting_works",
    f"Waiting work, by reason. Counted up to {MOST_COUNTED:,} for each job and group with ready "
    "work, and for all work that waits for its time, a key or its manifest.",
    *("group", "reason"),
)
ACTIVE = gauge(
    "headway_dispatcher_active_runs",
    "Runs that are ordered: pending until the body starts, then in progress.",
    *("group", "job", "state"),
)
COUNTED = gauge(
    "headway_dispatcher_counted_runs",
    "Slots in use that count against the global limit: runs of a lease share one.",
)
GLOBAL_LIMIT = gauge("headway_dispatcher_global_limit_runs", "Most active runs over all groups.")
GROUP_LIMIT = gauge(
    "headway_dispatcher_group_limit_runs",
    "Most active runs of a group, if it has a limit.",
    "group",
)
JOB_LIMIT = gauge(
    "headway_dispatcher_job_limit_runs", "Most active runs of a job, if it has a limit.", "job"
)
AWAITING = gauge(
    "headway_dispatcher_dead_letters_awaiting", f"Open dead letters. {_BOUNDED}", "group"
)
WORKERS = gauge("headway_dispatcher_workers", "Live workers, by job.", "job")
WORKER_SLOTS = gauge(
    "headway_dispatcher_worker_slots", "Slots of live workers that are not draining."
)
OUTBOX_ROWS = gauge("headway_dispatcher_outbox_rows", f"Messages not published yet. {_BOUNDED}")
OUTBOX_AGE = gauge(
    "headway_dispatcher_outbox_age_seconds", "Age of the oldest unpublished message."
)
REJECTED_ROWS = gauge(
    "headway_dispatcher_rejected_messages",
    f"Messages that could not be handled, stored in the table `rejected`. {_BOUNDED}",
)
PENDING = gauge(
    "headway_dispatcher_consumer_pending_messages",
    "Lag of a consumer: its undelivered and unacknowledged messages.",
    "consumer",
)
STREAM_BYTES = gauge("headway_dispatcher_stream_bytes", "Size of a stream.", "stream")
STREAM_LIMIT = gauge("headway_dispatcher_stream_limit_bytes", "Largest size of a stream.", "stream")

_FROM_DATABASE = (
    WAITING, ACTIVE, COUNTED, GLOBAL_LIMIT, GROUP_LIMIT, JOB_LIMIT, AWAITING, WORKERS, WORKER_SLOTS,
    OUTBOX_ROWS, OUTBOX_AGE, REJECTED_ROWS,
)  # fmt: skip
_FROM_NATS = (PENDING, STREAM_BYTES, STREAM_LIMIT)
MEASURES: tuple[Measure, ...] = (
    SETTLED, RETRIES, DEAD_LETTERS, START_LATENESS, ADMITTED, EVENTS_REFUSED, REVOKED,
    *_FROM_DATABASE, *_FROM_NATS,
)  # fmt: skip

_CONSUMERS = {
    "intake": (subjects.WORK_STREAM, subjects.WORK_CONSUMER),
    "projector": (subjects.EVENTS_STREAM, subjects.EVENTS_CONSUMER),
}
_STREAMS = (
    subjects.WORK_STREAM,
    subjects.RUNS_STREAM,
    subjects.EVENTS_STREAM,
    subjects.SETTLED_STREAM,
)


class Sample(Struct, frozen=True):
    """An event to count, or with `seconds` a duration to observe."""

    measure: Measure
    labels: tuple[str, ...]
    seconds: float | None = None


def measure(service: Service, settings: DispatcherSettings) -> None:
    """Count noted samples after each commit, and read the gauges on a scrape."""
    service.on_commit(partial(_count, service.meter))
    sources = (
        ("database", _FROM_DATABASE, partial(_read_database, service.database, settings)),
        ("nats", _FROM_NATS, partial(_read_nats, service.broker)),
    )
    for name, measures, read in sources:
        source = Source(name=name, measures=measures, ask=read)
        service.meter.ask(source, at_most_every=settings.metrics_age_seconds)


def _count(meter: Meter, samples: list[Sample]) -> None:
    for sample in samples:
        if sample.seconds is None:
            meter.add(sample.measure, *sample.labels)
        else:
            meter.observe(sample.measure, sample.seconds, *sample.labels)


async def _read_database(database: Database, settings: DispatcherSettings) -> Readings:
    silence = timedelta(seconds=settings.orphan_timeout_seconds)
    async with database.acquire() as connection:
        row = await connection.fetchrow(metric_queries["standing"], silence, MOST_COUNTED)
    assert row is not None  # noqa: S101 - a select of aggregates has one row
    return {
        WAITING: _by(row["waiting"], "group", "reason"),
        ACTIVE: _by(row["active"], "group", "job", "state"),
        COUNTED: {(): row["counted"]},
        GLOBAL_LIMIT: {(): settings.max_active},
        GROUP_LIMIT: _by(row["group_limits"], "group"),
        JOB_LIMIT: _by(row["job_limits"], "job"),
        AWAITING: _by(row["awaiting"], "group"),
        WORKERS: _by(row["workers"], "job"),
        WORKER_SLOTS: {(): row["slots"]},
        OUTBOX_ROWS: {(): row["outbox_rows"]},
        OUTBOX_AGE: {(): row["outbox_age"]},
        REJECTED_ROWS: {(): row["rejected"]},
    }


def _by(rows: list[dict[str, Any]] | None, *labels: str) -> dict[tuple[str, ...], float]:
    """Return the counts of rows by some of their columns."""
    found: dict[tuple[str, ...], float] = defaultdict(float)
    for row in rows or ():
        found[tuple(row[label] for label in labels)] += row["count"]
    return found


async def _read_nats(broker: Broker) -> Readings:
    pending: dict[tuple[str, ...], float] = {}
    used: dict[tuple[str, ...], float] = {}
    limits: dict[tuple[str, ...], float] = {}
    for name, (stream, consumer) in _CONSUMERS.items():
        info = await consumer_info(broker, stream, consumer)
        if info is not None:
            pending[name,] = info["num_pending"] + info["num_ack_pending"]
    for stream in _STREAMS:
        info = await stream_info(broker, stream)
        if info is not None:
            used[stream,] = info["state"]["bytes"]
            limits[stream,] = info["config"]["max_bytes"]
    return {PENDING: pending, STREAM_BYTES: used, STREAM_LIMIT: limits}
