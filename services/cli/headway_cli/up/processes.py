"""The services of `up`: started in the order in which they need each other, and settled."""

import asyncio
import logging
import os
from contextlib import AsyncExitStack

from headway_clock import monotonic
from headway_dispatcher.wiring import start_dispatcher
from headway_jetstream_kit import BrokerUnavailable
from headway_scheduler.wiring import start_scheduler
from headway_service_kit.health import Check, Health
from headway_service_kit.service import Service
from msgspec import Struct
from msgspec.structs import replace

from headway_cli.up.foreign_workers import OtherWorker
from headway_cli.up.local_credentials import Secrets, read_or_make
from headway_cli.up.plan import Plan
from headway_cli.up.servers import Ground
from headway_cli.up.summary import read_under_way, read_unsettled, read_workers
from headway_cli.up.worker_process import PartEnded, ShowLine, WorkerProcess, start_app_worker

_WORKER_SECONDS = 30.0
_GIVE_UP_AFTER = 3

# How long runs under way may take when time is up, when somebody waits at the keyboard, and for
# what a worker hands back as it stops.
_SETTLE_SECONDS = 20.0
_HURRIED_SECONDS = 3.0
_HANDED_BACK_SECONDS = 2.0


class Crew(Struct, frozen=True, kw_only=True):
    """Scheduler, dispatcher, console and workers, running."""

    scheduler: Service
    dispatcher: Service
    console: Service
    worker: WorkerProcess | None
    others: list[OtherWorker]
    console_url: str
    local: Secrets


async def start_crew(
    stack: AsyncExitStack, plan: Plan, ground: Ground, show_line: ShowLine
) -> Crew:
    """Start all services, the scheduler after the worker, so that the first fire finds one."""
    # Here, because commands that only ask are spared it; and first, because it takes a while
    # during which nobody who runs already could do anything.
    from headway_cli.up.local_console import start_local_console  # noqa: PLC0415

    urls = {"database_url": ground.database_url, "nats_url": ground.nats_url}
    dispatcher = await start_dispatcher(
        replace(plan.dispatcher, **urls), give_up_after=_GIVE_UP_AFTER
    )
    stack.push_async_callback(dispatcher.stop)
    environment = _worker_environment(ground)
    worker = await _start_own(stack, plan, ground, environment, show_line)
    others = await _start_others(stack, plan, environment, show_line)
    scheduler = await start_scheduler(
        replace(plan.scheduler, **urls), plan.definitions, give_up_after=_GIVE_UP_AFTER
    )
    stack.push_async_callback(scheduler.stop)
    local = read_or_make(plan.data)
    console = await start_local_console(
        replace(plan.console, **urls), local, folder=plan.data, give_up_after=_GIVE_UP_AFTER
    )
    stack.push_async_callback(console.stop)
    if plan.settings.health_address:
        health = _shared_health([scheduler, dispatcher, console])
        await health.start(plan.settings.health_address)
        stack.push_async_callback(health.stop)
    return Crew(
        scheduler=scheduler,
        dispatcher=dispatcher,
        console=console,
        worker=worker,
        others=others,
        console_url=f"http://{_reached(plan)}:{console.port}",
        local=local,
    )


async def _start_own(
    stack: AsyncExitStack,
    plan: Plan,
    ground: Ground,
    environment: dict[str, str],
    show_line: ShowLine,
) -> WorkerProcess | None:
    """Start the app's worker and wait for its first heartbeat, unless the app has no bodies."""
    if not plan.has_bodies:
        return None
    worker = await start_app_worker(
        plan.app,
        slots=plan.settings.worker_slots,
        environment=environment,
        show_line=show_line,
    )
    stack.push_async_callback(worker.stop)
    await _until_heard(ground, worker)
    return worker


async def _start_others(
    stack: AsyncExitStack, plan: Plan, environment: dict[str, str], show_line: ShowLine
) -> list[OtherWorker]:
    """Start the workers in other languages; nobody waits until they are heard of."""
    others = []
    for command in plan.worker_commands:
        other = await OtherWorker.start(command, environment=environment, show_line=show_line)
        stack.push_async_callback(other.stop)
        others.append(other)
    return others


def _reached(plan: Plan) -> str:
    """By which host this machine reaches its console."""
    host = plan.console.console_address.rpartition(":")[0]
    return "127.0.0.1" if host in ("", "0.0.0.0", "[::]") else host  # noqa: S104


async def check_all(crew: Crew, ground: Ground) -> None:
    """Raise if anything has ended that never should."""
    for part in ground.parts:
        part.check()
    if crew.worker is not None:
        await crew.worker.check()
    for other in crew.others:
        other.check()
    for service in (crew.scheduler, crew.dispatcher, crew.console):
        if service.broker.closed.is_set():
            raise BrokerUnavailable(f"{service.broker.where}: the connection was closed for good")


async def settle(crew: Crew, ground: Ground, stop: asyncio.Event) -> None:
    """Decide nothing more, and let what was decided come to its end."""
    await crew.scheduler.end_pass("tick")
    began = monotonic()
    while await read_unsettled(ground.database, ground.since):
        # A signal may also come now, and then somebody is waiting.
        patience = _HURRIED_SECONDS if stop.is_set() else _SETTLE_SECONDS
        if monotonic() - began > patience:
            break
        await asyncio.sleep(0.05)
    own = [] if crew.worker is None else [crew.worker.stop()]
    await asyncio.gather(*own, *(other.stop() for other in crew.others))
    deadline = monotonic() + _HANDED_BACK_SECONDS
    while monotonic() < deadline and await read_under_way(ground.database, ground.since):
        await asyncio.sleep(0.05)


def _worker_environment(ground: Ground) -> dict[str, str]:
    """Ours, with the address of NATS; the address for health checks is `up`'s own."""
    environment = {**os.environ, "HEADWAY_NATS_URL": ground.nats_url}
    environment.pop("HEADWAY_HEALTH_ADDRESS", None)
    if logging.getLogger().isEnabledFor(logging.DEBUG):
        environment["HEADWAY_DEBUG"] = "1"
    return environment


async def _until_heard(ground: Ground, worker: WorkerProcess) -> None:
    """Wait for the worker's first heartbeat."""
    deadline = monotonic() + _WORKER_SECONDS
    while not await read_workers(ground.database, ground.since):
        await worker.check()
        if monotonic() > deadline:
            raise PartEnded(
                f"the worker was not heard of within {_WORKER_SECONDS:g} s: see its output above, "
                "or run 'headway worker' alone with --debug"
            )
        await asyncio.sleep(0.02)


def _shared_health(services: list[Service]) -> Health:
    """One address that answers for several services."""

    def asked(service: Service, path: str) -> Check:
        async def ask() -> str | None:
            if service.health is None:
                return f"{service.name} does not answer for its health"
            status, body = await service.health.report(path)
            return None if status == 200 else body

        return ask

    return Health(
        "headway",
        live=[asked(service, "/livez") for service in services],
        ready=[asked(service, "/readyz") for service in services],
        meters=[service.meter for service in services],
        counts=[service.counts for service in services],
    )
