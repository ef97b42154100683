"""`headway up`: everything in one command.

Scheduler and dispatcher run in this process, the worker in a child process of its own,
so that a job that hogs its interpreter delays nobody else; PostgreSQL and NATS come
embedded unless URLs name others. All of them end with this process, whatever ends it.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any

import click
from headway_dispatcher.settings import DispatcherSettings
from headway_dispatcher.wiring import start_dispatcher
from headway_embedded import Warded, run_servers
from headway_postgres_kit import Database
from headway_scheduler.settings import SchedulerSettings
from headway_scheduler.wiring import start_scheduler
from headway_service_kit import settings as read_settings
from headway_service_kit.process import run, stop_on_signals
from headway_service_kit.service import Service
from headway_service_kit.telemetry import start_exporting
from msgspec import Struct
from rich.console import Console
from rich.live import Live

from headway_cli.apps import load_app
from headway_cli.services import apply_migrations
from headway_cli.summary import (
    line,
    read_now,
    read_report,
    read_summary,
    read_unsettled,
    read_workers,
    render,
)

_SETTLE_SECONDS = 20.0
_WORKER_SECONDS = 30.0
_GIVE_UP_AFTER = 5
_STREAM_BYTES = 256 * 1024**2


class UpFailed(Exception):
    """A part ended that never should."""


class Wishes(Struct, frozen=True, kw_only=True):
    """What the user asked `up` for."""

    app: str
    data: Path
    seconds: float | None
    as_json: bool
    slots: int | None


@click.command()
@click.argument("app", envvar="HEADWAY_APP")
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(".headway"),
    show_default=True,
    help="Where the embedded servers keep their data.",
)
@click.option("--for", "seconds", type=float, metavar="SECONDS", help="Stop by itself after this.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON summary as the last line.")
@click.option("--slots", type=int, help="Runs at once in the worker. [HEADWAY_WORKER_SLOTS]")
def up(**wishes: Any) -> None:
    """Run everything for APP (module, module:name or file.py) until Ctrl-C."""
    provider = start_exporting("headway", os.environ)
    try:
        run(_up(Wishes(**wishes)))
    finally:
        if provider is not None:
            provider.shutdown()


async def _up(wishes: Wishes) -> None:
    definitions = load_app(wishes.app).definitions()
    stop = stop_on_signals()
    console = Console(stderr=True)
    async with AsyncExitStack() as stack:
        urls = await stack.enter_async_context(_servers(wishes.data, console))
        environment = {**os.environ, **urls}
        database = await Database.connect(urls["HEADWAY_DATABASE_URL"], name="headway-up")
        stack.push_async_callback(database.close)
        await apply_migrations(database)
        since = await read_now(database)
        dispatcher = await start_dispatcher(
            read_settings.read(DispatcherSettings, environment, **_dispatcher_flags()),
            give_up_after=_GIVE_UP_AFTER,
        )
        stack.push_async_callback(dispatcher.stop)
        worker = await _start_worker(wishes, environment, console)
        stack.push_async_callback(worker.stop)
        await _until_heard(database, worker)
        scheduler = await start_scheduler(
            read_settings.read(SchedulerSettings, environment),
            definitions,
            give_up_after=_GIVE_UP_AFTER,
        )
        stack.push_async_callback(scheduler.stop)
        await _watch(wishes, database, worker, stop, since, console)
        console.print("stopping: no new work, letting runs finish")
        await _settle(scheduler, worker, database)
        report = await read_report(database, since)
    if wishes.as_json:
        click.echo(json.dumps(report))
    else:
        console.print(line_of(report))


def line_of(report: dict[str, Any]) -> str:
    """The report in words."""
    late = report["lateness_ms"]["p99"]
    return (
        f"{report['occurrences']} fired, {report['runs_completed']} runs completed, "
        f"{report['runs_failed']} failed, {report['dead_letters']} dead letters"
        + (f"; 99 of 100 began within {late:g} ms of their time" if late is not None else "")
    )


@asynccontextmanager
async def _servers(data: Path, console: Console) -> AsyncIterator[dict[str, str]]:
    """The URLs of PostgreSQL and NATS: those given, or embedded servers."""
    given = {
        name: os.environ[name]
        for name in ("HEADWAY_DATABASE_URL", "HEADWAY_NATS_URL")
        if os.environ.get(name)
    }
    async with run_servers(
        data,
        postgres="HEADWAY_DATABASE_URL" not in given,
        nats="HEADWAY_NATS_URL" not in given,
    ) as servers:
        for note in servers.notes:
            console.print(f"[yellow]{note}[/]")
        embedded = {
            "HEADWAY_DATABASE_URL": servers.database_url,
            "HEADWAY_NATS_URL": servers.nats_url,
        }
        yield {**embedded, **given}


def _dispatcher_flags() -> dict[str, Any]:
    """Everything in one command makes its streams itself, and small ones."""
    flags: dict[str, Any] = {}
    if not os.environ.get("HEADWAY_PROVISION"):
        flags["provision"] = "auto"
    if not os.environ.get("HEADWAY_STREAM_MAX_BYTES"):
        flags["stream_max_bytes"] = _STREAM_BYTES
    return flags


async def _start_worker(wishes: Wishes, environment: dict[str, str], console: Console) -> Warded:
    flags = ["--slots", str(wishes.slots)] if wishes.slots else []
    worker = await Warded.start(
        [sys.executable, "-m", "headway_cli", "worker", "--app", wishes.app, *flags],
        stop_signal=signal.SIGTERM,
        env=environment,
        cwd=Path.cwd(),
        stdout=PIPE,
        stderr=PIPE,
    )
    for stream in (worker.stdout, worker.stderr):
        if stream is not None:
            _keep_reference(asyncio.create_task(_show_lines(stream, console)))
    return worker


async def _until_heard(database: Database, worker: Warded) -> None:
    """Wait for the worker's first heartbeat, so that the first fire finds somebody to run it."""
    try:
        async with asyncio.timeout(_WORKER_SECONDS):
            while not await read_workers(database):
                _check_alive(worker)
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise UpFailed(f"the worker was not heard of within {_WORKER_SECONDS:g} s") from None


def _check_alive(worker: Warded) -> None:
    if worker.returncode is not None:
        raise UpFailed(
            f"the worker ended by itself with exit code {worker.returncode}; "
            "its last words are above"
        )


_background: set["asyncio.Task[None]"] = set()


def _keep_reference(task: "asyncio.Task[None]") -> None:
    """The loop keeps only weak references to tasks."""
    _background.add(task)
    task.add_done_callback(_background.discard)


async def _show_lines(stream: asyncio.StreamReader, console: Console) -> None:
    while line_bytes := await stream.readline():
        text = line_bytes.decode(errors="replace").rstrip()
        console.print(text, markup=False, highlight=False)


async def _watch(
    wishes: Wishes,
    database: Database,
    worker: Warded,
    stop: asyncio.Event,
    since: Any,
    console: Console,
) -> None:
    """Show progress until told to stop, or until the time is up."""
    loop = asyncio.get_running_loop()
    ends_at = None if wishes.seconds is None else loop.time() + wishes.seconds
    live = console.is_terminal
    with Live(console=console, auto_refresh=False, transient=True) as view:
        last_line = ""
        while not stop.is_set() and (ends_at is None or loop.time() < ends_at):
            summary = await read_summary(database, since)
            if live:
                view.update(render(summary), refresh=True)
            elif (now_line := line(summary)) != last_line:
                last_line = now_line
                console.print(now_line, highlight=False)
            _check_alive(worker)
            pause = 0.5 if live else 2.0
            if ends_at is not None:
                pause = min(pause, max(0.0, ends_at - loop.time()))
            await _wait(stop, pause)


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return


async def _settle(scheduler: Service, worker: Warded, database: Database) -> None:
    """Decide nothing more, and let what was decided come to its end."""
    await scheduler.end_pass("tick")
    try:
        async with asyncio.timeout(_SETTLE_SECONDS):
            while await read_unsettled(database):
                await asyncio.sleep(0.05)
    except TimeoutError:
        pass  # long runs are handed back by the worker's own drain
    await worker.stop(within=_SETTLE_SECONDS)
