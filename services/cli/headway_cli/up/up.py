"""`headway up`: everything in one command.

Scheduler, dispatcher and console run in this process; the app's worker, if the app has bodies, and
those in other languages run in child processes. PostgreSQL and NATS come embedded unless URLs name
others. All of them end with this process, whatever ends it. A signal ends it in order at any
moment: while it starts, what has been started is taken back; once it runs, no new work is decided
and runs under way get to their end.
"""

import asyncio
import contextlib
import json
import logging
import math
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import click
from headway_clock import monotonic, utc_now
from headway_console.access.tickets import sign_in_path
from headway_postgres_kit import DatabaseUnavailable
from headway_service_kit.process import run, stop_on_signals

from headway_cli.serve.running import noted
from headway_cli.serve.services import exporting
from headway_cli.serve.wait_for_servers import unless_stopped
from headway_cli.terminal import options
from headway_cli.up.foreign_workers import WorkerCommand, read_commands
from headway_cli.up.plan import Plan, make_plan
from headway_cli.up.processes import Crew, check_all, settle, start_crew
from headway_cli.up.screen import Screen, Show
from headway_cli.up.servers import Ground, lay_ground
from headway_cli.up.summary import in_words, read_now, read_report, read_summary

logger = logging.getLogger(__name__)

_CHECK_SECONDS = 0.5


@click.command()
@click.argument("app", envvar="HEADWAY_APP")
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(".headway"),
    show_default=True,
    help="Where the embedded servers keep their data.",
)
@options.seconds_option(
    "--for",
    "seconds",
    "Stop by itself after this.",
    type=click.FloatRange(min=0, min_open=True),
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON summary as the last line.")
@options.slots_option
@click.option(
    "--worker-command",
    "worker_commands",
    multiple=True,
    callback=read_commands,
    metavar="COMMAND",
    help="Run a worker besides the app's own, such as 'node worker.js'; may be repeated. An app "
    "in YAML needs one.",
)
@options.database_option
@options.nats_option
@options.health_option
@options.console_option
@options.wait_option
@options.debug_option
def up(
    app: str,
    worker_commands: tuple[WorkerCommand, ...],
    data: Path,
    seconds: float | None,
    as_json: bool,
    wait: float,
    **flags: Any,
) -> None:
    """Run everything for APP on this machine until Ctrl-C.

    APP is your file.py, module or module:name, or a YAML file whose jobs run in worker commands.
    PostgreSQL and NATS come along as child processes with a data folder; give the URL of a server
    of your own, and that one is used instead.

    A worker command is a program in any language that speaks the worker protocol. It finds NATS by
    HEADWAY_NATS_URL, is started again when it ends, and gets a SIGTERM when all of this ends.
    """
    plan = make_plan(
        app, flags, worker_commands=worker_commands, data=data, seconds=seconds, wait=wait
    )
    screen = Screen()
    with exporting("headway"):
        report = run(_up(plan, screen))
    if as_json:
        click.echo(json.dumps(report))
    else:
        screen.say(in_words(report))


async def _up(plan: Plan, screen: Screen) -> dict[str, Any]:
    """Start, watch, settle, stop; returns the figures, read when nobody writes any more."""
    stop = stop_on_signals()
    async with AsyncExitStack() as servers:
        ground = await unless_stopped(lay_ground(servers, plan, screen.say), stop)
        async with AsyncExitStack() as services:
            start = start_crew(services, plan, ground, screen.show_line)
            crew = await unless_stopped(start, stop)
            services.enter_context(
                noted(
                    plan.data,
                    nats_url=ground.nats_url,
                    database_url=ground.database_url,
                    url=crew.console_url,
                    token=crew.local.token,
                    ticket_key=crew.local.ticket_key,
                )
            )
            screen.say(_console_line(crew, screen))
            running_since = await read_now(ground.database)
            await _watch(plan, ground, crew, stop, screen)
            screen.say(
                "stopping: no new work, runs under way may finish (Ctrl-C ends them at once)"
            )
            await settle(crew, ground, stop)
        return await read_report(ground.database, ground.since, running_since)


def _console_line(crew: Crew, screen: Screen) -> str:
    """Name the console: at a terminal by a link that signs in once, never in a log."""
    if screen.is_terminal:
        return f"console: {crew.console_url}{sign_in_path(crew.local.ticket_key, utc_now())}"
    return f"console: {crew.console_url} ('headway sign-in' prints a link that signs you in)"


async def _watch(
    plan: Plan, ground: Ground, crew: Crew, stop: asyncio.Event, screen: Screen
) -> None:
    """Show progress until told to stop, or until the time is up."""
    ends_at = math.inf if plan.seconds is None else monotonic() + plan.seconds
    show_at = monotonic()
    with screen.watching() as show:
        while not stop.is_set() and (left := ends_at - monotonic()) > 0:
            await check_all(crew, ground)
            if monotonic() >= show_at:
                show_at += screen.pace
                await _show(ground, show)
            await _wait(stop, min(_CHECK_SECONDS, left))


async def _show(ground: Ground, show: Show) -> None:
    try:
        show(await read_summary(ground.database, ground.since))
    except DatabaseUnavailable as error:
        logger.warning("no progress to show: %s", error)


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()
