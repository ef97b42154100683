"""The servers and services of `up`: started in the order of their dependencies, and stopped."""

import asyncio
import getpass
import logging
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from headway_clock import monotonic, new_secret
from headway_console.public import TOKEN_PREFIX, ConsoleSettings
from headway_console.wiring import ConsoleService, LocalCredentials, start_console
from headway_dispatcher.wiring import start_dispatcher
from headway_embedded import Server, run_servers, write_secret
from headway_jetstream_kit import BrokerUnavailable
from headway_postgres_kit import Database
from headway_scheduler.wiring import start_scheduler
from headway_service_kit.health import AddressInUse, Health
from headway_service_kit.service import Service
from msgspec import Struct
from msgspec.structs import replace

from headway_cli.serve.running import LOCAL_NAME, PartEnded
from headway_cli.serve.servers import reach_broker, reach_database
from headway_cli.serve.services import apply_migrations
from headway_cli.up.plan import Plan
from headway_cli.up.processes import CommandWorker, ShowLine, WorkerProcess, check_runs
from headway_cli.up.summary import queries, read_value


class Credentials(Struct, frozen=True, kw_only=True):
    """Credentials of the local user: a token for commands, keys for sessions and sign-in links."""

    token: str
    # New at every start.
    ticket_key: str = ""
    session_key: str
    # The last port of the console, so that an open page finds it again; 0 before the first start.
    port: int = 0


def read_or_make(folder: Path) -> Credentials:
    """Read the credentials of a data folder; creates missing or unreadable ones."""
    try:
        kept = msgspec.json.decode((folder / LOCAL_NAME).read_bytes(), type=Credentials)
    except (OSError, msgspec.DecodeError):
        kept = Credentials(token=TOKEN_PREFIX + new_secret(), session_key=new_secret())
    credentials = replace(kept, ticket_key=new_secret())
    write_secret(folder / LOCAL_NAME, msgspec.json.encode(credentials))
    return credentials


async def start_local_console(
    settings: ConsoleSettings, credentials: Credentials, *, folder: Path, give_up_after: int
) -> ConsoleService:
    """Start the console; if any port will do, on its last port unless that is taken."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):
        # A container may run as a number that has no name.
        name = "unknown"
    person = LocalCredentials(name=name, token=credentials.token, ticket_key=credentials.ticket_key)
    settings = replace(settings, session_key=settings.session_key or credentials.session_key)
    host, _, port = settings.console_address.rpartition(":")
    start = partial(start_console, local=person, give_up_after=give_up_after)
    if port != "0":
        return await start(settings)
    try:
        console = await start(replace(settings, console_address=f"{host}:{credentials.port}"))
    except AddressInUse:
        console = await start(settings)
    if console.port != credentials.port:
        kept = replace(credentials, port=console.port)
        write_secret(folder / LOCAL_NAME, msgspec.json.encode(kept))
    return console


_WORKER_SECONDS = 30.0
_GIVE_UP_AFTER = 3

# How long runs may continue when the time is up, and when the user waits at the keyboard; and how
# long to wait for the runs that a stopping worker hands back.
_SETTLE_SECONDS = 20.0
_HURRIED_SECONDS = 3.0
_HAND_BACK_SECONDS = 2.0

Say = Callable[[str], None]


class Servers(Struct, frozen=True, kw_only=True):
    """PostgreSQL and NATS, and the time from which figures count."""

    urls: dict[str, str]
    database: Database
    since: datetime
    embedded: Sequence[Server]


class Services(Struct, frozen=True):
    """The running scheduler, dispatcher, console and workers, and their servers."""

    servers: Servers
    scheduler: Service
    dispatcher: Service
    console: Service
    workers: list[WorkerProcess | CommandWorker]
    console_url: str
    credentials: Credentials


async def start_servers(stack: AsyncExitStack, plan: Plan, say: Say) -> Servers:
    """Start or reach the servers and migrate the schemas; the stack stops them."""
    database_url, nats_url = plan.settings.database_url, plan.settings.nats_url
    embedded: Sequence[Server] = ()
    names = [name for name, url in (("PostgreSQL", database_url), ("NATS", nats_url)) if not url]
    if names:
        say(f"starting {' and '.join(names)} on the data folder {plan.data}")
        servers = await stack.enter_async_context(
            run_servers(plan.data, postgres=not database_url, nats=not nats_url)
        )
        for note in servers.notes:
            say(note)
        embedded = servers.running
        database_url, nats_url = database_url or servers.database_url, nats_url or servers.nats_url
    urls = {"database_url": str(database_url), "nats_url": str(nats_url)}
    database = await stack.enter_async_context(
        reach_database(urls["database_url"], name="headway-up", wait=plan.wait)
    )
    # Only to see that it answers: each service has a connection of its own.
    terms: Any = {"credentials": plan.settings.nats_creds, "wait": plan.wait}
    async with reach_broker(urls["nats_url"], name="headway-up", **terms):
        await apply_migrations(database)
    since = await read_value(database, queries["now"])
    return Servers(urls=urls, database=database, since=since, embedded=embedded)


async def start_services(
    stack: AsyncExitStack, plan: Plan, servers: Servers, show_line: ShowLine
) -> Services:
    """Start all services, the scheduler after the worker, so that the first fire finds one."""
    patience: Any = {"give_up_after": _GIVE_UP_AFTER}
    dispatcher = await start_dispatcher(replace(plan.dispatcher, **servers.urls), **patience)
    stack.push_async_callback(dispatcher.stop)
    credentials = read_or_make(plan.data)
    console_settings = replace(plan.console, **servers.urls)
    console = await start_local_console(console_settings, credentials, folder=plan.data, **patience)
    stack.push_async_callback(console.stop)
    host = plan.console.console_address.rpartition(":")[0]
    local_host = "127.0.0.1" if host in ("", "0.0.0.0", "[::]") else host  # noqa: S104
    console_url = f"http://{local_host}:{console.port}"
    environment = {
        **os.environ,
        "HEADWAY_NATS_URL": servers.urls["nats_url"],
        "HEADWAY_URL": console_url,
        "HEADWAY_TOKEN": credentials.token,
    }
    # That is the address of `up` itself.
    environment.pop("HEADWAY_HEALTH_ADDRESS", None)
    if logging.getLogger().isEnabledFor(logging.DEBUG):
        environment["HEADWAY_DEBUG"] = "1"
    workers: list[WorkerProcess | CommandWorker] = []
    if plan.has_bodies:
        workers.append(await _start_worker(stack, plan, servers, environment, show_line))
    for command in plan.worker_commands:
        started = CommandWorker(command, environment, show_line)
        await started.start()
        stack.push_async_callback(started.stop)
        workers.append(started)
    scheduler_settings = replace(plan.scheduler, **servers.urls)
    scheduler = await start_scheduler(scheduler_settings, plan.definitions, **patience)
    stack.push_async_callback(scheduler.stop)
    if plan.settings.health_address:
        health = _shared_health([scheduler, dispatcher, console])
        await health.start(plan.settings.health_address)
        stack.push_async_callback(health.stop)
    return Services(servers, scheduler, dispatcher, console, workers, console_url, credentials)


async def _start_worker(
    stack: AsyncExitStack, plan: Plan, servers: Servers, environment: dict[str, str], show: ShowLine
) -> WorkerProcess:
    """Start the app's worker and wait for its first heartbeat."""
    slots = plan.settings.worker_slots
    flags = ["--slots", str(slots)] if slots is not None else []
    words = [sys.executable, "-m", "headway_cli", "worker", "--app", plan.app, *flags]
    environment = {"PYTHONUNBUFFERED": "1", **environment}
    worker = WorkerProcess("the worker", words, environment, show)
    await worker.start()
    stack.push_async_callback(worker.stop)
    deadline = monotonic() + _WORKER_SECONDS
    while not await read_value(servers.database, queries["workers_heard"], servers.since):
        await worker.check()
        if monotonic() > deadline:
            raise PartEnded(
                f"the worker sent no heartbeat within {_WORKER_SECONDS:g} s: see its output above, "
                "or run 'headway worker' alone with --debug"
            )
        await asyncio.sleep(0.02)
    return worker


async def check_all(services: Services) -> None:
    """Raise if a part has ended that must not end."""
    for server in services.servers.embedded:
        check_runs(server.process, server.title, f"see {server.log}")
    for worker in services.workers:
        await worker.check()
    for service in (services.scheduler, services.dispatcher, services.console):
        if service.broker.closed.is_set():
            raise BrokerUnavailable(f"{service.broker.where}: the connection is closed for good")


async def settle(services: Services, stop: asyncio.Event) -> None:
    """Stop deciding, and let decided work finish."""
    database, since = services.servers.database, services.servers.since

    async def under_way() -> bool:
        return bool(await read_value(database, queries["under_way"], since))

    async def unsettled() -> bool:
        now = await read_value(database, queries["now"])
        return bool(await read_value(database, queries["to_come"], now)) or await under_way()

    await services.scheduler.end_pass("tick")
    began = monotonic()
    while await unsettled():
        # A signal during this wait means that the user is waiting.
        patience = _HURRIED_SECONDS if stop.is_set() else _SETTLE_SECONDS
        if monotonic() - began > patience:
            break
        await asyncio.sleep(0.05)
    await asyncio.gather(*(worker.stop() for worker in services.workers))
    deadline = monotonic() + _HAND_BACK_SECONDS
    while monotonic() < deadline and await under_way():
        await asyncio.sleep(0.05)


def _shared_health(services: list[Service]) -> Health:
    """Serve the health of several services at one address."""

    async def check(service: Service, path: str) -> str | None:
        if service.health is None:
            return f"{service.name} has no health address"
        status, body = await service.health.report(path)
        return None if status == 200 else body

    return Health(
        "headway",
        live=[partial(check, service, "/livez") for service in services],
        ready=[partial(check, service, "/readyz") for service in services],
        meters=[service.meter for service in services],
        counts=[service.counts for service in services],
    )
