"""What the dispatcher measures.

What happens in a transaction is noted there as a fact, and counted once it is committed. How
things stand is asked for when somebody scrapes: one query, and the state of streams and consumers.
"""

from collections import defaultdict
from datetime import timedelta
from functools import partial
from typing import Any

from headway_contract import subjects
from headway_jetstream_kit import Broker
from headway_jetstream_kit.provisioning import consumer_info, stream_info
from headway_postgres_kit import Database
from headway_service_kit.metrics import (
    Measure,
    Meter,
    Readings,
    Source,
    counter,
    gauge,
    histogram,
)
from headway_service_kit.service import Service
from msgspec import Struct

from headway_dispatcher.settings import DispatcherSettings
from headway_dispatcher.store import metric_queries

# How far rows are counted: a backlog beyond it is a large one anyway.
MOST_COUNTED = 10_000

_BOUNDED = f"Counted up to {MOST_COUNTED:,}."

SETTLED = counter(
    "headway_dispatcher_work_settled_total",
    "Work that was settled, by its outcome; the job of work that was cancelled before anybody knew "
    "it is empty.",
    *("group", "job", "outcome"),
)
RETRIES = counter(
    "headway_dispatcher_retries_total",
    "Failed runs whose work is tried again; a reason other than `retry` was no counted attempt.",
    *("group", "job", "reason"),
)
DEAD_LETTERS = counter(
    "headway_dispatcher_dead_letters_total",
    "Dead letters that were written, by the reason.",
    *("group", "job", "reason"),
)
START_LATENESS = histogram(
    "headway_dispatcher_start_lateness_seconds",
    "From the due time of a schedule to the begin of the body, of first attempts; a jitter counts.",
    "group",
)
ADMITTED = counter("headway_dispatcher_runs_admitted_total", "Runs that the gate let through.")
EVENTS_REFUSED = counter(
    "headway_dispatcher_events_refused_total",
    "Events of workers that were not accepted, by the reason.",
    "reason",
)
REVOKED = counter(
    "headway_dispatcher_leases_revoked_total",
    "Leases that the reaper took away: silent workers, orders nobody claimed, runs past their "
    "time-out and grace.",
    "reason",
)
WAITING = gauge(
    "headway_dispatcher_waiting_works",
    f"Work that waits, by the reason. Counted up to {MOST_COUNTED:,} of each job and group that "
    "could run, and of all that waits for its time, for a key, or for its manifest.",
    *("group", "reason"),
)
ACTIVE = gauge(
    "headway_dispatcher_active_runs",
    "Runs that hold a slot: pending until a worker has begun, then in progress.",
    *("group", "job", "state"),
)
COUNTED = gauge(
    "headway_dispatcher_counted_runs", "Active runs that count against the limit over all groups."
)
GLOBAL_LIMIT = gauge(
    "headway_dispatcher_global_limit_runs", "How many runs may be active over all groups."
)
GROUP_LIMIT = gauge(
    "headway_dispatcher_group_limit_runs",
    "How many runs of a group may be active, where that is limited.",
    "group",
)
JOB_LIMIT = gauge(
    "headway_dispatcher_job_limit_runs",
    "How many runs of a job may be active, where that is limited.",
    "job",
)
AWAITING = gauge(
    "headway_dispatcher_dead_letters_awaiting",
    f"Dead letters that await somebody. {_BOUNDED}",
    "group",
)
WORKERS = gauge("headway_dispatcher_workers", "Live workers, by the jobs that they serve.", "job")
WORKER_SLOTS = gauge(
    "headway_dispatcher_worker_slots", "Slots of all live workers that do not drain."
)
OUTBOX_ROWS = gauge(
    "headway_dispatcher_outbox_rows", f"Messages that are not published yet. {_BOUNDED}"
)
OUTBOX_AGE = gauge(
    "headway_dispatcher_outbox_age_seconds", "Age of the oldest message that is not published."
)
REJECTED_ROWS = gauge(
    "headway_dispatcher_rejected_messages",
    f"Messages that could not be handled, kept for somebody to look at. {_BOUNDED}",
)
PENDING = gauge(
    "headway_dispatcher_consumer_pending_messages",
    "Messages that a consumer has not been given yet, or has not acknowledged: its lag.",
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


class Settled(Struct, frozen=True):
    """Work was settled; `letter` is why a person has to look at it, if one has."""

    group: str
    job: str
    outcome: str
    letter: str | None = None


class Retried(Struct, frozen=True):
    """Work is tried again."""

    group: str
    job: str
    reason: str


class Started(Struct, frozen=True):
    """The body of a scheduled first attempt began, so late."""

    group: str
    seconds: float


class EventRefused(Struct, frozen=True):
    """An event of a worker was not accepted."""

    reason: str


Fact = Settled | Retried | Started | EventRefused


def measure(service: Service, settings: DispatcherSettings) -> None:
    """Count what is noted, and ask how things stand when somebody scrapes."""
    service.on_commit(partial(_count, service.meter))
    every = settings.metrics_age_seconds
    service.meter.ask(
        Source(
            name="database",
            measures=_FROM_DATABASE,
            ask=partial(_ask_database, service.database, settings),
        ),
        at_most_every=every,
    )
    service.meter.ask(
        Source(name="nats", measures=_FROM_NATS, ask=partial(_ask_nats, service.broker)),
        at_most_every=every,
    )


def _count(meter: Meter, facts: list[Fact]) -> None:
    for fact in facts:
        match fact:
            case Settled(group=group, job=job, outcome=outcome, letter=letter):
                meter.add(SETTLED, group, job, outcome)
                if letter is not None:
                    meter.add(DEAD_LETTERS, group, job, letter)
            case Retried(group=group, job=job, reason=reason):
                meter.add(RETRIES, group, job, reason)
            case Started(group=group, seconds=seconds):
                meter.observe(START_LATENESS, seconds, group)
            case EventRefused(reason=reason):
                meter.add(EVENTS_REFUSED, reason)


async def _ask_database(database: Database, settings: DispatcherSettings) -> Readings:
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
    """The counts of rows, by some of their columns."""
    found: dict[tuple[str, ...], float] = defaultdict(float)
    for row in rows or ():
        found[tuple(row[label] for label in labels)] += row["count"]
    return found


async def _ask_nats(broker: Broker) -> Readings:
    pending: dict[tuple[str, ...], float] = {}
    used: dict[tuple[str, ...], float] = {}
    limits: dict[tuple[str, ...], float] = {}
    for name, (stream, consumer) in _CONSUMERS.items():
        info = await consumer_info(broker, stream, consumer)
        if info is not None:
            pending[name,] = info["num_pending"] + info["num_ack_pending"]
    for stream in _STREAMS:
        found = await stream_info(broker, stream)
        if found is not None:
            used[stream,] = found["state"]["bytes"]
            limits[stream,] = found["config"]["max_bytes"]
    return {PENDING: pending, STREAM_BYTES: used, STREAM_LIMIT: limits}
