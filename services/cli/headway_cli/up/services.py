"""The services of `up`: started in the order of their dependencies, and stopped."""

import asyncio
import getpass
import logging
import os
import shlex
import sys
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from headway_clock import monotonic, new_secret
from headway_console.public import TOKEN_PREFIX, ConsoleSettings
from headway_console.wiring import LocalCredentials, start_console
from headway_dispatcher.wiring import start_dispatcher
from headway_embedded import free_port, port_is_free, write_secret
from headway_jetstream_kit import BrokerUnavailable
from headway_scheduler.wiring import start_scheduler
from headway_service_kit.health import Health
from headway_service_kit.service import Service
from msgspec import Struct
from msgspec.structs import replace

from headway_cli.serve.running import PartEnded
from headway_cli.serve.session import ConsoleAddress
from headway_cli.up.plan import Plan
from headway_cli.up.processes import ShowLine, WorkerProcess, check_runs
from headway_cli.up.servers import Servers
from headway_cli.up.summary import queries, read_value

LOCAL_NAME = "local.json"


class Credentials(Struct, frozen=True, kw_only=True):
    """Credentials of the local user: a token for commands, keys for sessions and sign-in links."""

    token: str
    # New at every start.
    ticket_key: str = ""
    session_key: str
    # The port of the console, kept so that an open page finds it again.
    port: int = 0


def read_or_make(folder: Path) -> Credentials:
    """Read the credentials of a data folder; creates missing or unreadable ones."""
    try:
        kept = msgspec.json.decode((folder / LOCAL_NAME).read_bytes(), type=Credentials)
    except (OSError, msgspec.DecodeError):
        kept = Credentials(token=TOKEN_PREFIX + new_secret(), session_key=new_secret())
    port = kept.port if kept.port and port_is_free(kept.port) else free_port()
    credentials = replace(kept, ticket_key=new_secret(), port=port)
    write_secret(folder / LOCAL_NAME, msgspec.json.encode(credentials))
    return credentials


def settings_of_console(settings: ConsoleSettings, credentials: Credentials) -> ConsoleSettings:
    """Fill in the session key, and the kept port if any port will do."""
    host, _, port = settings.console_address.rpartition(":")
    return replace(
        settings,
        console_address=f"{host}:{credentials.port if port == '0' else port}",
        session_key=settings.session_key or credentials.session_key,
    )


def _person(credentials: Credentials) -> LocalCredentials:
    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):
        # A container may run as a number that has no name.
        name = "unknown"
    return LocalCredentials(name=name, token=credentials.token, ticket_key=credentials.ticket_key)


_WORKER_SECONDS = 30.0
_GIVE_UP_AFTER = 3

# How long runs may continue when the time is up, and when the user waits at the keyboard; and how
# long to wait for the runs that a stopping worker hands back.
_SETTLE_SECONDS = 20.0
_HURRIED_SECONDS = 3.0
_HAND_BACK_SECONDS = 2.0


class Services(Struct, frozen=True):
    """The running scheduler, dispatcher, console and workers, and their servers."""

    servers: Servers
    scheduler: Service
    dispatcher: Service
    console: Service
    workers: list[WorkerProcess]
    console_address: ConsoleAddress
    credentials: Credentials
    # The task that follows changes of the app, if there is one.
    followers: list[asyncio.Task[None]] = []

    async def check(self) -> None:
        """Raise if a part has ended that must not end."""
        for server in self.servers.embedded:
            check_runs(server.process, server.title, f"see {server.log}")
        for worker in self.workers:
            await worker.check()
        for follower in self.followers:
            if follower.done():
                follower.result()
        for service in (self.scheduler, self.dispatcher, self.console):
            if service.broker.closed.is_set():
                raise BrokerUnavailable(
                    f"{service.broker.where}: the connection is closed for good"
                )

    async def settle(self, stop: asyncio.Event) -> None:
        """Stop deciding, and let decided work finish."""
        database, since = self.servers.database, self.servers.since

        async def under_way() -> bool:
            return bool(await read_value(database, queries["under_way"], since))

        async def unsettled() -> bool:
            now = await read_value(database, queries["now"])
            return bool(await read_value(database, queries["to_come"], now)) or await under_way()

        await self.scheduler.end_pass("tick")
        began = monotonic()
        while await unsettled():
            # A signal during this wait means that the user is waiting.
            patience = _HURRIED_SECONDS if stop.is_set() else _SETTLE_SECONDS
            if monotonic() - began > patience:
                break
            await asyncio.sleep(0.05)
        await asyncio.gather(*(worker.stop() for worker in self.workers))
        deadline = monotonic() + _HAND_BACK_SECONDS
        while monotonic() < deadline and await under_way():
            await asyncio.sleep(0.05)


async def start_services(
    stack: AsyncExitStack, plan: Plan, servers: Servers, show_line: ShowLine
) -> Services:
    """Start all services, the scheduler after the worker, so that the first fire finds one."""
    patience: Any = {"give_up_after": _GIVE_UP_AFTER}
    dispatcher = await start_dispatcher(replace(plan.dispatcher, **servers.urls), **patience)
    stack.push_async_callback(dispatcher.stop)
    credentials = read_or_make(plan.data)
    console_settings = settings_of_console(replace(plan.console, **servers.urls), credentials)
    host, _, port = console_settings.console_address.rpartition(":")
    local_host = "127.0.0.1" if host in ("", "0.0.0.0", "[::]") else host  # noqa: S104
    address = ConsoleAddress(url=f"http://{local_host}:{port}", token=credentials.token)
    environment = {
        **os.environ,
        "HEADWAY_NATS_URL": servers.urls["nats_url"],
        "HEADWAY_URL": address.url,
        "HEADWAY_TOKEN": credentials.token,
    }
    # That is the address of `up` itself.
    environment.pop("HEADWAY_HEALTH_ADDRESS", None)
    if logging.getLogger().isEnabledFor(logging.DEBUG):
        environment["HEADWAY_DEBUG"] = "1"
    workers: list[WorkerProcess] = []
    if plan.has_bodies:
        slots = plan.settings.worker_slots
        words = [sys.executable, "-m", "headway_cli", "worker", "--app", plan.app]
        words += ["--slots", str(slots)] if slots is not None else []
        unbuffered = {"PYTHONUNBUFFERED": "1", **environment}
        if plan.reads_log:
            # So that its entries can be read.
            unbuffered["HEADWAY_LOG_FORMAT"] = "json"
        # With `reload`, the author of the app is about to fix it.
        must_run = not plan.reload
        workers.append(
            await _start_worker(
                stack, "the worker", words, unbuffered, show_line, must_run=must_run
            )
        )
    # Meanwhile the worker loads.
    console = await start_console(console_settings, local=_person(credentials), **patience)
    stack.push_async_callback(console.stop)
    for worker in workers:
        await _until_heard(servers, worker)
    # The app's own worker may have this name; two workers must not share it.
    environment.pop("HEADWAY_WORKER_NAME", None)
    for command in plan.worker_commands:
        words = shlex.split(command)
        workers.append(
            await _start_worker(stack, command, words, environment, show_line, must_run=False)
        )
    scheduler_settings = replace(plan.scheduler, **servers.urls)
    scheduler = await start_scheduler(scheduler_settings, plan.definitions, **patience)
    stack.push_async_callback(scheduler.stop)
    if plan.settings.health_address:
        health = _shared_health([scheduler, dispatcher, console])
        await health.start(plan.settings.health_address)
        stack.push_async_callback(health.stop)
    return Services(servers, scheduler, dispatcher, console, workers, address, credentials)


async def _start_worker(stack: AsyncExitStack, *terms: Any, **options: Any) -> WorkerProcess:
    worker = WorkerProcess(*terms, **options)
    await worker.start()
    stack.push_async_callback(worker.stop)
    return worker


async def _until_heard(servers: Servers, worker: WorkerProcess) -> None:
    """Wait for the first heartbeat of the app's worker."""
    deadline = monotonic() + _WORKER_SECONDS
    while not await read_value(servers.database, queries["workers_heard"], servers.since):
        await worker.check()
        if monotonic() > deadline:
            raise PartEnded(
                f"the worker sent no heartbeat within {_WORKER_SECONDS:g} s: see its output above, "
                "or run 'headway worker' alone with --debug"
            )
        await asyncio.sleep(0.02)


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
    )
