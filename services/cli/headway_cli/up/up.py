"""The `up` command: start, watch, settle, stop. A signal stops it in order at any moment."""

import asyncio
import json
import math
import os
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from headway_clock import monotonic, utc_now
from headway_console.public import sign_in_path
from headway_embedded import write_secret
from headway_errors import RequestFailed
from headway_jetstream_kit.tasks import end
from headway_service_kit.process import run, stop_on_signals
from headway_tracing.log import get_logger

from headway_cli.serve.lifetime import exporting, unless_stopped, wait_for_stop
from headway_cli.serve.running import NOTE_NAME, Running
from headway_cli.terminal import options
from headway_cli.up.frame import read_up_state
from headway_cli.up.plan import Plan, make_plan
from headway_cli.up.processes import check_commands
from headway_cli.up.screen import Screen
from headway_cli.up.servers import start_servers
from headway_cli.up.summary import queries, read_report, read_value, report_text

if TYPE_CHECKING:
    from headway_cli.up.services import Services

log = get_logger(__name__)

_CHECK_SECONDS = 0.5
_PORT_HELP = "Port of the console; by default a free port, kept for the next start."


@click.command()
@click.argument("app", envvar="HEADWAY_APP")
@options.data_option("Folder for the data of the embedded servers.")
@options.seconds_option("--for", "seconds", "Stop after this time.", type=options.POSITIVE)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON summary as the last line.")
@options.slots_option
@options.repeated(
    *("--worker-command", "worker_commands", "COMMAND"),
    "Run another worker, such as 'node worker.js'; may be repeated. An app in YAML needs one.",
    callback=check_commands,
)
@options.database_option
@options.nats_option
@options.health_option
@options.text("--console-port", "N", _PORT_HELP, type=click.IntRange(0, 65_535))
@options.wait_option
@options.flag("--reload", "Follow changes of the app: restart workers, declare it again.")
@options.flag("--open", "Open the console in the browser, signed in.", "opens_browser")
@options.debug_option
def up(app: str, as_json: bool, opens_browser: bool, **terms: Any) -> None:
    """Run everything for APP on this machine until Ctrl-C.

    APP is your file.py, module or module:name, or a YAML file whose jobs run in worker commands.
    PostgreSQL and NATS run as child processes on a data folder; give the URL of a server to use it
    instead.

    A worker command is a program in any language that speaks the worker protocol. It finds NATS by
    HEADWAY_NATS_URL, is restarted when it ends, and gets a SIGTERM when 'up' ends.
    """
    parts = ("worker_commands", "data", "seconds", "wait", "reload")
    own = {name: terms.pop(name) for name in parts}
    if own["reload"]:
        # A file that changes twice within a second may match the bytecode of its last version.
        sys.dont_write_bytecode = True
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    plan = make_plan(app, terms, **own)
    screen = Screen(reads_log=plan.reads_log)
    with exporting("headway"):
        report = run(_up(plan, screen, opens_browser=opens_browser))
    if as_json:
        click.echo(json.dumps(report))
    else:
        screen.say(report_text(report))


async def _up(plan: Plan, screen: Screen, *, opens_browser: bool) -> dict[str, Any]:
    """Start, watch, settle, stop; returns the figures, read when all services have stopped."""
    stop = stop_on_signals()
    async with AsyncExitStack() as server_stack:
        servers = await unless_stopped(start_servers(server_stack, plan, screen.say), stop)
        # Not above: they were loaded while the servers started.
        from headway_cli.up.reload import follow_changes, open_browser  # noqa: PLC0415
        from headway_cli.up.services import start_services  # noqa: PLC0415

        async with AsyncExitStack() as stack:
            start = start_services(stack, plan, servers, screen.show_line)
            services = await unless_stopped(start, stop)
            url, key = services.console_address.url, services.credentials.ticket_key
            known = {"url": url, "token": services.credentials.token, "ticket_key": key}
            stack.enter_context(noted(plan.data, **servers.urls, **known))
            # A link that signs in once: at a terminal, never in a log.
            link = " ('headway sign-in' prints a link that signs you in)"
            link = sign_in_path(key, utc_now()) if screen.is_terminal else link
            screen.say(f"console: {url}{link}")
            if opens_browser:
                await open_browser(url + sign_in_path(key, utc_now()), screen.say)
            if plan.reload:
                stack.push_async_callback(end, [follow_changes(plan, services, screen.say)])
            running_since = await read_value(servers.database, queries["now"])
            await _watch(plan, services, stop, screen)
            screen.say(
                "stopping: no new work, runs under way may finish (Ctrl-C ends them at once)"
            )
            await services.settle(stop)
        return await read_report(servers.database, servers.since, running_since)


@contextmanager
def noted(folder: Path, **known: str) -> Iterator[None]:
    """Keep a note with the fields of `Running` while the body runs."""
    running = Running(pid=os.getpid(), **known)
    write_secret(folder / NOTE_NAME, msgspec.json.encode(running))
    try:
        yield
    finally:
        (folder / NOTE_NAME).unlink(missing_ok=True)


async def _watch(plan: Plan, services: "Services", stop: asyncio.Event, screen: Screen) -> None:
    """Show the state until a signal comes, or until the time is up."""
    ends_at = math.inf if plan.seconds is None else monotonic() + plan.seconds
    show_at, address = monotonic(), services.console_address
    async with address.control() as control:
        with screen.watching(plan.app, address.url) as show:
            while not stop.is_set() and (left := ends_at - monotonic()) > 0:
                await services.check()
                if monotonic() >= show_at:
                    show_at += screen.pace
                    try:
                        show(await read_up_state(control))
                    except RequestFailed as error:
                        log.warning("cannot read the state", error=error)
                await wait_for_stop(stop, min(_CHECK_SECONDS, left))
