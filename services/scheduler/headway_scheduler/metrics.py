"""What the scheduler measures.

What happens in a transaction is noted there as a fact, and counted once it is committed. How
things stand is asked for when somebody scrapes: one query, and the state of the consumer.
"""

from functools import partial

from headway_contract import subjects
from headway_jetstream_kit import Broker
from headway_jetstream_kit.provisioning import consumer_info
from headway_postgres_kit import Clock, Database
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

from headway_scheduler.settings import SchedulerSettings
from headway_scheduler.store import metric_queries

# How far rows are counted: a backlog beyond it is a large one anyway.
MOST_COUNTED = 10_000

_BOUNDED = f"Counted up to {MOST_COUNTED:,}."

FIRES = counter(
    "headway_scheduler_fires_total",
    "Work that was queued for manifests, by what caused it: `due`, `success`, `activation`, "
    "`trigger`.",
    *("group", "cause"),
)
SKIPS = counter(
    "headway_scheduler_skips_total",
    "Decisions not to fire, by the reason; a stretch that is decided at once counts once.",
    "reason",
)
FIRE_LATENESS = histogram(
    "headway_scheduler_fire_lateness_seconds",
    "From the time that a manifest was to fire, jitter included, to the decision.",
    "group",
)
ENQUEUED = counter(
    "headway_scheduler_enqueued_total",
    "Work that applications enqueued, and what became of it: `queued` or `refused`.",
    *("job", "verdict"),
)
NOTIFICATIONS = counter(
    "headway_scheduler_notifications_total",
    "Attempts to send a notification to the webhook, and how each ended: `delivered`, `failed` "
    "(it is sent again) or `given_up`.",
    "outcome",
)
NOTIFICATIONS_PENDING = gauge(
    "headway_scheduler_pending_notifications",
    f"Notifications that the webhook has not taken yet. {_BOUNDED}",
)
NOTIFICATIONS_AGE = gauge(
    "headway_scheduler_pending_notifications_age_seconds",
    "Age of the oldest notification that the webhook has not taken; 0 while there is none.",
)
LEADER = gauge("headway_scheduler_leader", "1 for the scheduler that decided last, 0 for others.")
DUE = gauge(
    "headway_scheduler_due_manifests", f"Manifests that the tick has yet to look at. {_BOUNDED}"
)
DUE_AGE = gauge(
    "headway_scheduler_due_age_seconds",
    "For how long the first of them has been due; 0 while nothing is.",
)
UNSETTLED = gauge(
    "headway_scheduler_unsettled_works", f"Work whose outcome has not been heard of. {_BOUNDED}"
)
ENQUEUED_WAITING = gauge(
    "headway_scheduler_enqueued_waiting_works",
    f"Work that applications enqueued and nobody has taken up. {_BOUNDED}",
)
ENQUEUED_REFUSED = gauge(
    "headway_scheduler_enqueued_refused_works",
    f"Enqueued work that was refused and that nobody has dismissed. {_BOUNDED}",
)
OUTBOX_ROWS = gauge(
    "headway_scheduler_outbox_rows", f"Messages that are not published yet. {_BOUNDED}"
)
OUTBOX_AGE = gauge(
    "headway_scheduler_outbox_age_seconds", "Age of the oldest message that is not published."
)
REJECTED_ROWS = gauge(
    "headway_scheduler_rejected_messages",
    f"Messages that could not be handled, kept for somebody to look at. {_BOUNDED}",
)
PENDING = gauge(
    "headway_scheduler_consumer_pending_messages",
    "Outcomes that the scheduler has not been given yet, or has not acknowledged: its lag.",
    "consumer",
)

_FROM_DATABASE = (
    LEADER, DUE, DUE_AGE, UNSETTLED, ENQUEUED_WAITING, ENQUEUED_REFUSED, OUTBOX_ROWS, OUTBOX_AGE,
    REJECTED_ROWS, NOTIFICATIONS_PENDING, NOTIFICATIONS_AGE,
)  # fmt: skip
MEASURES: tuple[Measure, ...] = (
    FIRES, SKIPS, FIRE_LATENESS, ENQUEUED, NOTIFICATIONS, *_FROM_DATABASE, PENDING,
)  # fmt: skip


class Fired(Struct, frozen=True):
    """Work was queued for a manifest; so late, if a schedule caused it."""

    group: str
    cause: str
    late: float | None


class Skipped(Struct, frozen=True):
    """A decision made no work."""

    reason: str


class TakenUp(Struct, frozen=True):
    """Enqueued work was queued or refused."""

    job: str
    verdict: str


class Notified(Struct, frozen=True):
    """An attempt to send a notification ended; `pending` ones are sent again."""

    state: str


Fact = Fired | Skipped | TakenUp | Notified


def measure(service: Service, settings: SchedulerSettings, *, holder: str, clock: Clock) -> None:
    """Count what is noted, and ask how things stand when somebody scrapes."""
    service.on_commit(partial(_count, service.meter))
    every = settings.metrics_age_seconds
    service.meter.ask(
        Source(
            name="database",
            measures=_FROM_DATABASE,
            ask=partial(_ask_database, service.database, holder, clock),
        ),
        at_most_every=every,
    )
    service.meter.ask(
        Source(name="nats", measures=(PENDING,), ask=partial(_ask_nats, service.broker)),
        at_most_every=every,
    )


def _count(meter: Meter, facts: list[Fact]) -> None:
    for fact in facts:
        match fact:
            case Fired(group=group, cause=cause, late=late):
                meter.add(FIRES, group, cause)
                if late is not None:
                    meter.observe(FIRE_LATENESS, late, group)
            case Skipped(reason=reason):
                meter.add(SKIPS, reason)
            case TakenUp(job=job, verdict=verdict):
                meter.add(ENQUEUED, job, verdict)
            case Notified(state=state):
                meter.add(NOTIFICATIONS, "failed" if state == "pending" else state)


async def _ask_database(database: Database, holder: str, clock: Clock) -> Readings:
    async with database.acquire() as connection:
        now = await clock.now(connection)
        row = await connection.fetchrow(metric_queries["standing"], now, holder, MOST_COUNTED)
    assert row is not None  # noqa: S101 - a select of aggregates has one row
    by_column = {
        LEADER: "leader",
        DUE: "due",
        DUE_AGE: "due_age",
        UNSETTLED: "unsettled",
        ENQUEUED_WAITING: "enqueued_waiting",
        ENQUEUED_REFUSED: "enqueued_refused",
        OUTBOX_ROWS: "outbox_rows",
        OUTBOX_AGE: "outbox_age",
        REJECTED_ROWS: "rejected",
        NOTIFICATIONS_PENDING: "notifications_pending",
        NOTIFICATIONS_AGE: "notifications_age",
    }
    return {one: {(): row[column]} for one, column in by_column.items()}


async def _ask_nats(broker: Broker) -> Readings:
    info = await consumer_info(broker, subjects.SETTLED_STREAM, subjects.SETTLED_CONSUMER)
    if info is None:
        return {PENDING: {}}
    return {PENDING: {("intake",): info["num_pending"] + info["num_ack_pending"]}}
