"""The services alone, and what prepares the ground for them."""

import asyncio
import os
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import click
from headway.define.defaults import DefinitionSettings
from headway.worker import UnknownJobs, Worker, WorkerSettings, choose_jobs
from headway_clock import monotonic
from headway_console.settings import ConsoleSettings
from headway_dispatcher.provisioning import provision_by
from headway_dispatcher.settings import DispatcherSettings
from headway_dispatcher.store import MIGRATIONS as DISPATCHER_MIGRATIONS
from headway_dispatcher.wiring import start_dispatcher
from headway_jetstream_kit import Broker, BrokerUnavailable
from headway_jetstream_kit.watchdog import Patience
from headway_postgres_kit import Database, SchemaMismatch
from headway_scheduler.settings import SchedulerSettings
from headway_scheduler.store import MIGRATIONS as SCHEDULER_MIGRATIONS
from headway_scheduler.store import enqueue_role_is_missing
from headway_scheduler.wiring import start_scheduler
from headway_service_kit.health import Health
from headway_service_kit.process import keep_trying, run, stop_on_signals
from headway_service_kit.service import Service
from headway_service_kit.settings import (
    DatabaseUrl,
    HealthAddress,
    NatsCreds,
    NatsPing,
    NatsUrl,
)
from headway_service_kit.telemetry import start_exporting
from msgspec import Meta, Struct

from headway_cli.serve import settings
from headway_cli.serve.find_app import load_app
from headway_cli.serve.wait_for_servers import reach_broker, reach_database, unless_stopped
from headway_cli.serve.worker_metrics import meter_of
from headway_cli.terminal import options

_EXPORT_SECONDS = 2.0
_LOOK_AGAIN_SECONDS = 1.0

_ROLE_IS_MISSING = """\
note: there is no role headway_enqueue that may enqueue; this user may not make roles. For
applications that enqueue work in transactions of their own, let somebody who may run:
  CREATE ROLE headway_enqueue NOLOGIN;
  GRANT USAGE ON SCHEMA headway TO headway_enqueue;
  GRANT EXECUTE ON FUNCTION headway.enqueue TO headway_enqueue;"""


class WorkerProgramSettings(WorkerSettings, frozen=True, kw_only=True):
    """What a worker's process needs besides the worker's own settings."""

    app: Annotated[
        str, Meta(description="Your app: `file.py`, `module` or `module:name`, or a YAML file.")
    ]
    nats_url: NatsUrl
    nats_creds: NatsCreds = None
    nats_ping_seconds: NatsPing = 3.0
    health_address: HealthAddress = "127.0.0.1:0"


class MigrateSettings(Struct, frozen=True, kw_only=True):
    """What a migration needs."""

    database_url: DatabaseUrl


@click.command()
@options.app_option
@options.database_option
@options.nats_option
@options.health_option
@options.setting(
    "--prune",
    "prune",
    "What becomes of manifests that the app no longer declares.",
    type=click.Choice(["delete", "disable", "keep"]),
)
@options.setting(
    "--tick",
    "tick",
    "Off: declare and answer questions, but never fire.",
    type=click.Choice(["on", "off"]),
)
@options.debug_option
def scheduler(app: str | None, **flags: Any) -> None:
    """Run a scheduler: it decides when work is due.

    It declares the manifests of your app at its start, and needs none to go on with those that
    are declared. Any number may run at once; one of them decides.
    """
    settings.check([SchedulerSettings, DefinitionSettings], flags)
    given = settings.read(SchedulerSettings, flags)
    app = app or os.environ.get("HEADWAY_APP")
    definitions = load_app(app).definitions(settings.read_defaults()) if app else None
    with exporting("headway-scheduler"):
        run(_serve(start_scheduler(given, definitions)))


@click.command()
@options.database_option
@options.nats_option
@options.health_option
@options.setting(
    "--provision",
    "provision",
    "Whether to make missing streams in NATS, or only to name them.",
    type=click.Choice(["auto", "manual"]),
)
@options.debug_option
def dispatcher(**flags: Any) -> None:
    """Run a dispatcher: it sees due work through.

    It hands work to workers, within its limits, until it is settled. Any number may run at once
    and share the work.
    """
    given = settings.read(DispatcherSettings, flags)
    with exporting("headway-dispatcher"):
        run(_serve(start_dispatcher(given)))


@click.command()
@options.database_option
@options.nats_option
@options.health_option
@options.setting(
    "--address",
    "console_address",
    "Where to serve; anything but loopback needs auth.",
    metavar="HOST:PORT",
)
@options.setting(
    "--tokens", "api_tokens_file", "Who may come in; see 'headway token new'.", metavar="FILE"
)
@options.debug_option
def console(**flags: Any) -> None:
    """Run a console: the HTTP API and the web pages.

    It reads from the database and changes nothing in it; whatever somebody wants done, it asks of
    the scheduler and the dispatcher. Any number may run at once.
    """
    # Half a second that every other command is spared.
    from headway_console.wiring import start_console  # noqa: PLC0415

    given = settings.read(ConsoleSettings, flags)
    with exporting("headway-console"):
        run(_serve(start_console(given)))


@click.command()
@options.app_option
@options.nats_option
@options.health_option
@options.setting("--name", "worker_name", "The worker's name; without it a new one at each start.")
@options.slots_option
@click.option(
    "--job",
    "jobs",
    metavar="NAME",
    multiple=True,
    help="Serve only this job; may be repeated. Without it the worker serves all.",
)
@options.debug_option
def worker(jobs: tuple[str, ...], **flags: Any) -> None:
    """Run a worker: it runs the jobs of your app.

    It needs NATS and nothing else. Any number may run at once; a worker that is told to stop
    lets its runs finish first.
    """
    given = settings.read(WorkerProgramSettings, flags)
    loaded = load_app(given.app)
    loaded.definitions()
    try:
        choose_jobs(loaded, jobs)
    except UnknownJobs as error:
        raise click.BadParameter(f"{error}.", param_hint="'--job'") from error

    async def serve() -> None:
        stop = stop_on_signals()
        broker = await unless_stopped(_reach_patiently(given), stop)
        try:
            program = Worker(loaded, broker, given, only=jobs)
            health = _worker_health(program, broker, given)
            await health.start(given.health_address)
            try:
                await program.run(stop)
            finally:
                await health.stop()
        finally:
            await broker.close()

    with exporting("headway-worker"):
        run(serve())


@click.command()
@options.database_option
@options.wait_option
@click.option(
    "--check",
    is_flag=True,
    help="Change nothing: wait until somebody else has migrated, and fail if nobody does.",
)
@options.debug_option
def migrate(wait: float, check: bool, **flags: Any) -> None:
    """Bring the schemas in PostgreSQL up to date.

    Run it before the services of a new version start. It goes forward only, and changes nothing
    where there is nothing to do.
    """
    given = settings.read(MigrateSettings, flags)

    async def apply() -> tuple[list[str], bool]:
        deadline = monotonic() + wait
        database = await reach_database(given.database_url, name="headway-migrate", wait=wait)
        try:
            if check:
                await _until_migrated(database, deadline)
                return [], False
            return await apply_migrations(database), await enqueue_role_is_missing(database)
        finally:
            await database.close()

    applied, role_is_missing = run(apply())
    for step in applied:
        click.echo(f"applied {step}")
    if not applied:
        click.echo("the schemas are up to date")
    if role_is_missing:
        click.echo(_ROLE_IS_MISSING)


@click.command()
@options.nats_option
@options.setting(
    "--replicas",
    "stream_replicas",
    "Copies of each stream.",
    type=click.IntRange(min=1),
    metavar="N",
)
@options.setting(
    "--max-bytes",
    "stream_max_bytes",
    "Largest size of a stream.",
    type=click.IntRange(min=1),
    metavar="N",
)
@options.wait_option
@options.debug_option
def provision(wait: float, **flags: Any) -> None:
    """Make the streams and consumers in NATS.

    Those that are there are brought up to date, and nothing in them is lost.
    """
    # The dispatcher's settings without its database, which nobody needs here.
    environment = {**os.environ, "HEADWAY_DATABASE_URL": "postgresql://"}
    given = settings.read(DispatcherSettings, flags, environment)

    async def apply() -> list[str]:
        broker = await reach_broker(
            given.nats_url, name="headway-provision", credentials=given.nats_creds, wait=wait
        )
        try:
            return await provision_by(broker, given)
        finally:
            await broker.close()

    touched = run(apply())
    click.echo(f"made {', '.join(touched)}" if touched else "everything is in place")


async def apply_migrations(database: Database) -> list[str]:
    """Both schemas, in one go."""
    return [
        *await SCHEDULER_MIGRATIONS.apply(database),
        *await DISPATCHER_MIGRATIONS.apply(database),
    ]


async def _until_migrated(database: Database, deadline: float) -> None:
    """Back when both schemas are those of this program; raises at the deadline if not."""
    while True:
        try:
            await SCHEDULER_MIGRATIONS.check(database)
            await DISPATCHER_MIGRATIONS.check(database)
        except SchemaMismatch:
            if monotonic() + _LOOK_AGAIN_SECONDS > deadline:
                raise
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)
        else:
            return


@contextmanager
def exporting(service: str) -> Iterator[None]:
    """Export spans where an endpoint is configured, the last ones too if it answers soon."""
    provider = start_exporting(service, os.environ)
    try:
        yield
    finally:
        if provider is not None:
            # A collector that is gone must hold up nobody who wants to stop.
            closing = threading.Thread(target=provider.shutdown, daemon=True)
            closing.start()
            closing.join(_EXPORT_SECONDS)


async def _serve(start: Coroutine[Any, Any, Service]) -> None:
    """Run a service until a signal comes; before it runs as well as after."""
    stop = stop_on_signals()
    service = await unless_stopped(start, stop)
    await service.run_until(stop)


async def _reach_patiently(given: WorkerProgramSettings) -> Broker:
    return await keep_trying(
        lambda: Broker.connect(
            given.nats_url,
            name="headway-worker",
            credentials=given.nats_creds,
            # Private, so that permissions can keep other workers from listening there.
            inbox_prefix=f"_INBOX.{given.worker_name}" if given.worker_name else None,
            patience=Patience(ask_every=given.nats_ping_seconds),
        ),
        what="NATS at HEADWAY_NATS_URL is not reachable",
        faults=(BrokerUnavailable,),
    )


# How many heartbeats may go unanswered before a worker calls itself not ready.
_MISSED_BEATS = 10


def _worker_health(program: Worker, broker: Broker, given: WorkerSettings) -> Health:
    async def broker_answers() -> str | None:
        try:
            await broker.ping()
        except BrokerUnavailable as error:
            return f"NATS: {error}"
        return None

    async def dispatcher_answers() -> str | None:
        silent = program.heartbeats.silence()
        if program.heartbeats.last_reply is None:
            return "no dispatcher has answered yet"
        if silent > _MISSED_BEATS * given.heartbeat_seconds:
            return f"no dispatcher has answered for {silent:.0f} s"
        return None

    return Health(
        "worker",
        live=[],
        ready=[broker_answers, dispatcher_answers],
        meters=[meter_of(program, broker, given.worker_slots)],
    )
