"""Metrics of the scheduler.

Transactions note facts, which are counted once they are committed. Gauges are read when metrics are
scraped: with one query, and from the state of the consumer.
"""

from functools import partial

from headway_contract import subjects
from headway_jetstream_kit import Broker
from headway_jetstream_kit.provisioning import consumer_info
from headway_postgres_kit import Database
from headway_service_kit.metrics import Measure, Readings, Source, counter, gauge, histogram
from headway_service_kit.metrics import Sample as Sample
from headway_service_kit.service import Service

from headway_scheduler.settings import SchedulerSettings
from headway_scheduler.store import metric_queries

# Rows are counted up to this number: a larger backlog is large anyway.
MOST_COUNTED = 10_000

_BOUNDED = f"Counted up to {MOST_COUNTED:,}."

FIRES = counter(
    "headway_scheduler_fires_total",
    "Work that was queued for manifests, by its cause: `due`, `success`, `activation`, `trigger`.",
    *("group", "cause"),
)
SKIPS = counter(
    "headway_scheduler_skips_total",
    "Decisions not to fire, by their reason; times that are skipped together count once.",
    "reason",
)
FIRE_LATENESS = histogram(
    "headway_scheduler_fire_lateness_seconds",
    "Time from the fire time of a manifest, jitter included, to the decision.",
    "group",
)
ENQUEUED = counter(
    "headway_scheduler_enqueued_total",
    "Enqueued work by its verdict: `queued` or `refused`.",
    *("job", "verdict"),
)
NOTIFICATIONS = counter(
    "headway_scheduler_notifications_total",
    "Attempts to send a notification to the webhook, by their outcome: `delivered`, `failed` "
    "(it is sent again) or `given_up`.",
    "outcome",
)
PENDING = gauge(
    "headway_scheduler_consumer_pending_messages",
    "Outcomes that the scheduler has not received or not acknowledged: its lag.",
    "consumer",
)

# Gauges by the column of the query `gauges`: name and description of each.
_GAUGES = {
    "leader": ("leader", "1 for the scheduler that decided last, 0 for others."),
    "due": ("due_manifests", f"Manifests that wait for the tick. {_BOUNDED}"),
    "due_age": ("due_age_seconds", "Time since the first of them came due; 0 if none is due."),
    "unsettled": ("unsettled_works", f"Work whose outcome has not arrived. {_BOUNDED}"),
    "enqueued_waiting": (
        "enqueued_waiting_works",
        f"Enqueued work that no scheduler has read yet. {_BOUNDED}",
    ),
    "enqueued_refused": (
        "enqueued_refused_works",
        f"Enqueued work that was refused and not dismissed. {_BOUNDED}",
    ),
    "outbox_rows": ("outbox_rows", f"Messages that are not published yet. {_BOUNDED}"),
    "outbox_age": ("outbox_age_seconds", "Age of the oldest message that is not published."),
    "rejected": (
        "rejected_messages",
        f"Messages that could not be handled and are kept for inspection. {_BOUNDED}",
    ),
    "notifications_pending": (
        "pending_notifications",
        f"Notifications that the webhook has not accepted yet. {_BOUNDED}",
    ),
    "notifications_age": (
        "pending_notifications_age_seconds",
        "Age of the oldest notification that the webhook has not accepted; 0 if there is none.",
    ),
}
_FROM_DATABASE = {
    column: gauge(f"headway_scheduler_{name}", text) for column, (name, text) in _GAUGES.items()
}
MEASURES: tuple[Measure, ...] = (
    *(FIRES, SKIPS, FIRE_LATENESS, ENQUEUED, NOTIFICATIONS),
    *_FROM_DATABASE.values(),
    PENDING,
)


def measure(service: Service, settings: SchedulerSettings, *, holder: str) -> None:
    """Read the gauges when metrics are scraped."""
    sources = (
        Source(
            name="database",
            measures=tuple(_FROM_DATABASE.values()),
            ask=partial(_read_database, service.database, holder),
        ),
        Source(name="nats", measures=(PENDING,), ask=partial(_read_nats, service.broker)),
    )
    for source in sources:
        service.meter.ask(source, at_most_every=settings.metrics_age_seconds)


async def _read_database(database: Database, holder: str) -> Readings:
    async with database.acquire() as connection:
        now = await database.clock.now(connection)
        row = await connection.fetchrow(metric_queries["gauges"], now, holder, MOST_COUNTED)
    assert row is not None  # noqa: S101 - a select of aggregates has one row
    return {measure: {(): row[column]} for column, measure in _FROM_DATABASE.items()}


async def _read_nats(broker: Broker) -> Readings:
    info = await consumer_info(broker, subjects.SETTLED_STREAM, subjects.SETTLED_CONSUMER)
    if info is None:
        return {PENDING: {}}
    return {PENDING: {("intake",): info["num_pending"] + info["num_ack_pending"]}}
