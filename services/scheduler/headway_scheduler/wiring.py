"""The composition root of the scheduler: connects its parts and starts its passes."""

import os
import socket
from functools import partial
from typing import Any

from headway.define.definitions import Definitions
from headway_clock import new_nonce
from headway_jetstream_kit import ConsumerMissing
from headway_postgres_kit import DATABASE_CLOCK, Clock
from headway_relay import Handover, Relay
from headway_service_kit.passes import SAFETY_POLL, Wakeup
from headway_service_kit.service import Service, open_service
from headway_tracing.log import get_logger
from msgspec.structs import replace

from headway_scheduler import metrics
from headway_scheduler.declare.startup import apply_at_start
from headway_scheduler.fire.tick import Advanced, Tick
from headway_scheduler.healing.healing import Healing
from headway_scheduler.notifications.delivery import Delivery
from headway_scheduler.notifications.recorder import write_notifications
from headway_scheduler.notifications.webhook import Webhook, webhook_of
from headway_scheduler.operate.desk import Desk
from headway_scheduler.operate.enqueue import Enqueue
from headway_scheduler.operate.pause import Windows
from headway_scheduler.outcomes.blocked_log import log_blocked, log_still_blocked
from headway_scheduler.outcomes.settle import settled_intake
from headway_scheduler.retention import Retention
from headway_scheduler.settings import SchedulerSettings
from headway_scheduler.store import MIGRATIONS, OUTBOX

log = get_logger(__name__)


async def start_scheduler(
    settings: SchedulerSettings,
    definitions: Definitions | None,
    *,
    give_up_after: int | None = None,
    clock: Clock = DATABASE_CLOCK,
) -> Service:
    """Connect, check the schema, declare the application's definitions, and start the passes."""
    webhook = webhook_of(settings)
    service = await open_service(
        "scheduler", settings, measures=metrics.MEASURES, give_up_after=give_up_after
    )
    service.database.clock = service.requests.clock = clock
    try:
        await MIGRATIONS.check(service.database)
        if webhook is not None:
            # A request may find missed fires: `apply` decides times of replaced timings.
            for database in (service.database, service.requests):
                database.before_commit = partial(write_notifications, clock)
        if definitions is not None:
            await declare(service, settings, definitions)
        await _start_passes(service, settings, webhook)
        port = await service.answer_for_health(settings.health_address)
        await log_still_blocked(service.database)
    except BaseException:
        await service.stop()
        raise
    log.info("scheduler started", health_port=port, tick=settings.tick)
    return service


async def declare(service: Service, settings: SchedulerSettings, definitions: Definitions) -> None:
    """Declare the application's definitions, at the start or while the service runs."""
    if settings.generation is not None:
        definitions = replace(definitions, generation=settings.generation)
    may_fire = settings.tick == "on"
    await apply_at_start(service.database, definitions, policy=settings.prune, may_fire=may_fire)


async def _start_passes(
    service: Service, settings: SchedulerSettings, webhook: Webhook | None
) -> None:
    database, broker = service.database, service.broker
    holder = f"{socket.gethostname()}:{os.getpid()}:{new_nonce()}"
    metrics.measure(service, settings, holder=holder)
    relay_wakeup, tick_wakeup = Handover(), Wakeup()

    def on_commit(facts: list[Any]) -> None:
        service.meter.count(facts)
        log_blocked(facts)
        for fact in facts:
            if isinstance(fact, Advanced):
                fact.hand_over(relay_wakeup)
                tick_wakeup.call_by(fact.wake_at)

    service.on_commit(on_commit)
    enqueue_wakeup, windows_wakeup = Wakeup(), Wakeup()
    entries = settings.max_entries_per_cycle
    tick = Tick(database, holder=holder, max_entries=entries, relay=relay_wakeup)
    intake = settled_intake(database, broker, tick=tick_wakeup)
    healing = Healing(
        database,
        broker,
        holder=holder,
        ask_after_seconds=settings.ask_after_seconds,
        relay=relay_wakeup,
        tick=tick_wakeup,
    )

    async def heal() -> float | None:
        result = await healing.run_once()
        return 0.0 if result is not None and result.unfinished else None

    async def take_in() -> float | None:
        # The tick continues without streams: its messages wait in the outbox.
        try:
            return await intake.run_once()
        except ConsumerMissing as error:
            raise ConsumerMissing(
                f"waiting for the streams in NATS: {error}: run 'headway provision', or start a "
                "dispatcher with HEADWAY_PROVISION=auto"
            ) from error

    async def run_tick() -> float | None:
        tick_wakeup.begin()
        result = await tick.run_once()
        tick_wakeup.runs_at(result.next_at)
        return result.rest

    delivery = None
    if webhook is not None:
        delivery = Delivery(database, webhook, settings)
        service.keep("notify", delivery.run_once)
    desk = Desk(
        service.requests,
        broker,
        settings,
        name=holder,
        wakeups=(relay_wakeup, tick_wakeup, enqueue_wakeup),
        windows=windows_wakeup,
        delivery=delivery,
    )
    await desk.listen()
    relay = Relay(database, broker, OUTBOX, relay_wakeup, batch=settings.outbox_batch)
    service.keep("relay", relay.run_once, relay_wakeup)
    service.keep("healing", heal, poll=min(SAFETY_POLL, settings.ask_after_seconds / 4))
    enqueue = Enqueue(database, relay=relay_wakeup, batch=settings.enqueue_batch)
    service.keep("enqueue", enqueue.run_once, enqueue_wakeup, poll=settings.enqueue_poll_seconds)
    service.keep("refused", enqueue.look_again)
    clean_up = settings.clean_up_seconds
    retention = Retention(
        database, days=settings.history_days, every=clean_up, rejected_days=settings.rejected_days
    )
    service.keep("retention", retention.run_once, poll=clean_up)
    windows = Windows(database, relay=relay_wakeup, tick=tick_wakeup)
    service.keep("windows", windows.run_once, windows_wakeup)
    await intake.take_over()
    service.keep("intake", take_in)
    if settings.tick == "on":
        service.keep("tick", run_tick, tick_wakeup)
