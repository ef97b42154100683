"""The composition root of the dispatcher."""

import os
import socket
from datetime import timedelta
from functools import partial
from typing import Any

from headway_clock import new_nonce
from headway_jetstream_kit import BrokerUnavailable
from headway_postgres_kit import DATABASE_CLOCK, Clock
from headway_relay import Relay
from headway_service_kit.service import Service, open_service
from headway_tracing.log import get_logger

from headway_dispatcher import metrics
from headway_dispatcher.gate.durations import Durations
from headway_dispatcher.gate.gate import Gate
from headway_dispatcher.gate.waits import Waits
from headway_dispatcher.history.retention import Retention
from headway_dispatcher.intake.prune import prune_manifests
from headway_dispatcher.intake.work_intake import work_intake
from headway_dispatcher.letters.canaries import advance_canaries
from headway_dispatcher.letters.letters import purge_letters, retry_waiting
from headway_dispatcher.operate.cancel import push_cancels
from headway_dispatcher.operate.desk import Desk
from headway_dispatcher.provisioning import NotProvisioned, check_provisioned, provision_by
from headway_dispatcher.runs import leases
from headway_dispatcher.runs.failure_log import FailureLog
from headway_dispatcher.runs.fencing import withdraw_expired
from headway_dispatcher.runs.heartbeats import Heartbeats, send_own_heartbeat
from headway_dispatcher.runs.job_consumers import JobConsumers
from headway_dispatcher.runs.orders import Orders, purge_events, rebuild_orders
from headway_dispatcher.runs.progress import ProgressDesk
from headway_dispatcher.runs.projector import event_intake
from headway_dispatcher.runs.reaper import Reaper
from headway_dispatcher.settings import DispatcherSettings
from headway_dispatcher.store import MIGRATIONS, OUTBOX
from headway_dispatcher.wakeups import Wakeups

log = get_logger(__name__)

_REAP_EVERY = 1.0


async def start_dispatcher(
    settings: DispatcherSettings, *, give_up_after: int | None = None, clock: Clock = DATABASE_CLOCK
) -> Service:
    """Connect, check schema and streams, then run all passes.

    `clock` is the source of schedule time; liveness always uses PostgreSQL's clock.
    """
    service = await open_service(
        "dispatcher", settings, measures=metrics.MEASURES, give_up_after=give_up_after
    )
    service.database.clock = service.requests.clock = clock
    try:
        await MIGRATIONS.check(service.database)
        await service.wait_for(
            lambda: _ensure_streams(service, settings),
            what="the streams in NATS",
            faults=(BrokerUnavailable, NotProvisioned),
            address=settings.health_address,
            give_up_after=give_up_after,
        )
        await _keep_passes(service, settings)
        port = await service.answer_for_health(settings.health_address)
    except BaseException:
        await service.stop()
        raise
    log.info("dispatcher started", health_port=port)
    return service


async def _ensure_streams(service: Service, settings: DispatcherSettings) -> list[str]:
    """Create missing streams and consumers, or raise; returns the names of created ones."""
    if settings.provision == "auto":
        return await provision_by(service.broker, settings)
    await check_provisioned(service.broker, settings)
    return []


async def _keep_passes(service: Service, settings: DispatcherSettings) -> None:
    database, broker, meter = service.database, service.broker, service.meter
    metrics.measure(service, settings)
    failures = FailureLog()

    def on_commit(facts: list[Any]) -> None:
        meter.count(facts)
        failures.write(facts)

    service.on_commit(on_commit)
    name = f"{socket.gethostname()}:{os.getpid()}:{new_nonce()}"
    wake = Wakeups()
    gate = Gate(database, settings, wake)
    consumers = JobConsumers(database, broker, settings, wake.consumers)
    heartbeats = Heartbeats(database, broker, settings, name=name, gate=wake.gate)
    progress = ProgressDesk(database, broker)
    reaper = Reaper(database, broker, settings, name=name)
    orders = Orders(database, broker, settings, name=name)
    retention = Retention(
        database,
        days=settings.history_days,
        worker_days=settings.worker_days,
        rejected_days=settings.rejected_days,
    )

    async def run_gate() -> float | None:
        result = await gate.run_once()
        meter.add(metrics.ADMITTED, amount=result.admitted)
        return result.rest

    async def reap() -> None:
        for reason, number in (await reaper.run_once()).reasons.items():
            meter.add(metrics.REVOKED, reason, amount=number)

    async def clean_up() -> float | None:
        cleaned = await retention.run_once()
        return 0.0 if cleaned.unfinished else settings.clean_up_seconds

    async def purge_stream() -> None:
        await purge_events(database, broker)

    async def ensure_streams() -> None:
        made = await _ensure_streams(service, settings)
        if made:
            consumers.check_again()
            log.warning("streams recreated", names=", ".join(made))

    await heartbeats.listen()
    await leases.listen(database, broker)
    await progress.listen()
    await Desk(service.requests, broker, settings, name=name, wake=wake).listen()
    intakes = {
        "intake": work_intake(
            database,
            broker,
            wake=wake,
            rank_step=timedelta(seconds=settings.rank_step_seconds),
            retention=timedelta(days=settings.history_days),
        ),
        "projector": event_intake(database, broker, wake),
    }
    rebuild = partial(rebuild_orders, settings)
    relay = Relay(database, broker, OUTBOX, wake.relay, settings.outbox_batch, rebuild)
    service.keep("relay", relay.run_once, wake.relay)
    for pass_name, intake in intakes.items():
        await intake.take_over()
        service.keep(pass_name, intake.run_once)
    service.keep("gate", run_gate, wake.gate)
    service.keep("waits", Waits(database, settings).run_once, wake.waits)
    service.keep("durations", Durations(database, wake.durations).run_once, wake.durations)
    service.keep("cancels", partial(push_cancels, database, broker, name), wake.cancels)
    expire = partial(withdraw_expired, database, broker, settings, name)
    service.keep("expiry", expire, wake.expiry)
    service.keep("prunes", partial(prune_manifests, database, wake.relay), wake.prunes)
    service.keep("letters", partial(retry_waiting, database, wake))
    service.keep("canaries", partial(advance_canaries, database, wake), wake.canaries)
    purge = partial(purge_letters, database, days=settings.dead_letter_days)
    service.keep("letter-retention", purge, poll=settings.clean_up_seconds)
    # Workers need replies even while this process has errors, so the backoff is short.
    service.keep("heartbeats", heartbeats.run_once, heartbeats.arrived, longest_backoff=0.2)
    service.keep("progress", progress.run_once, progress.arrived)
    service.keep("witness", partial(send_own_heartbeat, broker, settings, name))
    service.keep("reaper", reap, poll=_REAP_EVERY)
    service.keep("retention", clean_up, poll=settings.clean_up_seconds)
    service.keep("streams", ensure_streams)
    service.keep("consumers", consumers.run_once, wake.consumers)
    service.keep("orders", orders.run_once, poll=settings.heartbeat_seconds)
    service.keep("tidying", purge_stream)
