"""Putting the scheduler together: the one place that knows all of its parts."""

import logging
import os
import socket

from headway.definitions import Definitions
from headway_clock import new_nonce
from headway_relay import Relay
from headway_service_kit.passes import Wakeup
from headway_service_kit.service import Service, open_service

from headway_scheduler.declare import declare
from headway_scheduler.desk import ManifestDesk
from headway_scheduler.intake import settled_intake
from headway_scheduler.settings import SchedulerSettings
from headway_scheduler.store import MIGRATIONS, OUTBOX
from headway_scheduler.tick import Tick

logger = logging.getLogger(__name__)


async def start_scheduler(
    settings: SchedulerSettings,
    definitions: Definitions | None,
    *,
    give_up_after: int | None = None,
) -> Service:
    """Connect, check the schema, declare what the application defines, then tick."""
    service = await open_service(
        "scheduler",
        database_url=settings.database_url,
        nats_url=settings.nats_url,
        nats_creds=settings.nats_creds,
        give_up_after=give_up_after,
    )
    try:
        await MIGRATIONS.check(service.database)
        if definitions is not None:
            await declare(service.database, definitions)
        await ManifestDesk(service.database, service.broker).listen()
        _keep_passes(service, settings)
        port = await service.answer_for_health(settings.health_address)
    except BaseException:
        await service.stop()
        raise
    logger.info("scheduler runs, health on port %d", port)
    return service


def _keep_passes(service: Service, settings: SchedulerSettings) -> None:
    relay_wakeup = Wakeup()
    tick = Tick(
        service.database,
        holder=f"{socket.gethostname()}:{os.getpid()}:{new_nonce()}",
        max_entries=settings.max_entries_per_cycle,
        relay=relay_wakeup,
    )
    relay = Relay(service.database, service.broker, OUTBOX)
    intake = settled_intake(service.database, service.broker)

    async def run_tick() -> float | None:
        return (await tick.run_once()).rest

    service.keep("relay", relay.run_once, relay_wakeup)
    service.keep("intake", intake.run_once)
    service.keep("tick", run_tick)
