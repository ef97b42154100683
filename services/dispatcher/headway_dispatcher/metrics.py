"""Metrics of the dispatcher.

Transactions note samples, which `wiring` counts after the commit. A scrape reads gauges: one query,
and the state of streams and consumers.
"""

from collections import defaultdict
from datetime import timedelta
from functools import partial
from typing import Any

from headway_contract import subjects
from headway_jetstream_kit import Broker
from headway_jetstream_kit.provisioning import consumer_info, stream_info
from headway_postgres_kit import Database
from headway_service_kit.metrics import Measure, Readings, Source, counter, gauge, histogram
from headway_service_kit.metrics import Sample as Sample
from headway_service_kit.service import Service

from headway_dispatcher.provisioning import STREAMS
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
    "Time from the due time of a manifest to the start of the body, of first attempts; includes "
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
GLOBAL_LIMIT = gauge(
    "headway_dispatcher_global_limit_runs", "Limit of slots in use over all groups."
)
GROUP_LIMIT = gauge(
    "headway_dispatcher_group_limit_runs",
    "Limit of slots in use by a group, if it has one.",
    "group",
)
JOB_LIMIT = gauge(
    "headway_dispatcher_job_limit_runs", "Limit of slots in use by a job, if it has one.", "job"
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
STREAM_LIMIT = gauge("headway_dispatcher_stream_limit_bytes", "Maximum size of a stream.", "stream")

# The column of the query `standing` from which each gauge is read.
_FROM_DATABASE = {
    WAITING: "waiting",
    ACTIVE: "active",
    COUNTED: "counted",
    GROUP_LIMIT: "group_limits",
    JOB_LIMIT: "job_limits",
    AWAITING: "awaiting",
    WORKERS: "workers",
    WORKER_SLOTS: "slots",
    OUTBOX_ROWS: "outbox_rows",
    OUTBOX_AGE: "outbox_age",
    REJECTED_ROWS: "rejected",
}
_FROM_NATS = (PENDING, STREAM_BYTES, STREAM_LIMIT)
MEASURES: tuple[Measure, ...] = (
    *(SETTLED, RETRIES, DEAD_LETTERS, START_LATENESS, ADMITTED, EVENTS_REFUSED, REVOKED),
    *(*_FROM_DATABASE, GLOBAL_LIMIT, *_FROM_NATS),
)

_CONSUMERS = {
    "intake": (subjects.WORK_STREAM, subjects.WORK_CONSUMER),
    "projector": (subjects.EVENTS_STREAM, subjects.EVENTS_CONSUMER),
}


def measure(service: Service, settings: DispatcherSettings) -> None:
    """Read the gauges on a scrape."""
    database = partial(_read_database, service.database, settings)
    sources = (
        ("database", (*_FROM_DATABASE, GLOBAL_LIMIT), database),
        ("nats", _FROM_NATS, partial(_read_nats, service.broker)),
    )
    for name, measures, read in sources:
        source = Source(name=name, measures=measures, ask=read)
        service.meter.ask(source, at_most_every=settings.metrics_age_seconds)


async def _read_database(database: Database, settings: DispatcherSettings) -> Readings:
    silence = timedelta(seconds=settings.orphan_timeout_seconds)
    async with database.acquire() as connection:
        row = await connection.fetchrow(metric_queries["standing"], silence, MOST_COUNTED)
    assert row is not None  # noqa: S101 - a select of aggregates has one row
    readings: dict[Measure, dict[tuple[str, ...], float]] = {
        measure: _by(row[column], *measure.labels) if measure.labels else {(): row[column]}
        for measure, column in _FROM_DATABASE.items()
    }
    return readings | {GLOBAL_LIMIT: {(): settings.max_active}}


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
    for stream in STREAMS:
        info = await stream_info(broker, stream)
        if info is not None:
            used[stream,] = info["state"]["bytes"]
            limits[stream,] = info["config"]["max_bytes"]
    return {PENDING: pending, STREAM_BYTES: used, STREAM_LIMIT: limits}
