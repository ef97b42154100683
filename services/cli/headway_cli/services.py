"""The services alone, and what prepares the ground for them."""

import os
from typing import Any

import click
from headway.worker import Worker, WorkerSettings
from headway_clock import monotonic
from headway_dispatcher.provisioning import provision as provision_streams
from headway_dispatcher.settings import DispatcherSettings
from headway_dispatcher.store import MIGRATIONS as DISPATCHER_MIGRATIONS
from headway_dispatcher.wiring import start_dispatcher
from headway_jetstream_kit import Broker, BrokerUnavailable
from headway_postgres_kit import Database
from headway_scheduler.settings import SchedulerSettings
from headway_scheduler.store import MIGRATIONS as SCHEDULER_MIGRATIONS
from headway_scheduler.wiring import start_scheduler
from headway_service_kit import settings as read_settings
from headway_service_kit.health import Health
from headway_service_kit.process import keep_trying, run, stop_on_signals
from headway_service_kit.service import Service
from headway_service_kit.telemetry import start_exporting
from msgspec import Struct

from headway_cli.apps import load_app

_app_option = click.option(
    "--app", envvar="HEADWAY_APP", help="Your app: module, module:name or file.py. [HEADWAY_APP]"
)
_database_option = click.option("--database-url", help="PostgreSQL. [HEADWAY_DATABASE_URL]")
_nats_option = click.option("--nats-url", help="NATS. [HEADWAY_NATS_URL]")
_health_option = click.option(
    "--health-address", help="Where to answer /livez and /readyz. [HEADWAY_HEALTH_ADDRESS]"
)


class ConnectionSettings(Struct, frozen=True, kw_only=True):
    """What a worker or a set-up command needs to reach NATS."""

    nats_url: str
    nats_creds: str | None = None
    health_address: str = "127.0.0.1:0"


class DatabaseSettings(Struct, frozen=True, kw_only=True):
    """What a migration needs."""

    database_url: str


@click.command()
@_app_option
@_database_option
@_nats_option
@_health_option
def scheduler(app: str | None, **flags: Any) -> None:
    """Run a scheduler: declare the app's manifests, then tick."""
    settings = read_settings.read(SchedulerSettings, os.environ, **flags)
    definitions = load_app(app).definitions() if app else None

    async def serve() -> None:
        await _until_signal(await start_scheduler(settings, definitions))

    _run("headway-scheduler", serve())


@click.command()
@_database_option
@_nats_option
@_health_option
@click.option("--provision", type=click.Choice(["auto", "manual"]), help="[HEADWAY_PROVISION]")
def dispatcher(**flags: Any) -> None:
    """Run a dispatcher."""
    settings = read_settings.read(DispatcherSettings, os.environ, **flags)

    async def serve() -> None:
        await _until_signal(await start_dispatcher(settings))

    _run("headway-dispatcher", serve())


@click.command()
@_app_option
@_nats_option
@_health_option
@click.option("--name", "worker_name", help="The worker's name. [HEADWAY_WORKER_NAME]")
@click.option("--slots", "worker_slots", type=int, help="Runs at once. [HEADWAY_WORKER_SLOTS]")
def worker(app: str | None, **flags: Any) -> None:
    """Run a worker for the app's jobs."""
    if not app:
        raise click.UsageError("name your app with --app or HEADWAY_APP")
    connection = read_settings.read(ConnectionSettings, os.environ, **flags)
    settings = read_settings.read(WorkerSettings, os.environ, **flags)
    loaded = load_app(app)
    loaded.definitions()

    async def serve() -> None:
        stop = stop_on_signals()
        broker = await keep_trying(
            lambda: Broker.connect(
                connection.nats_url, name="headway-worker", credentials=connection.nats_creds
            ),
            what="NATS at HEADWAY_NATS_URL is not reachable",
            faults=(BrokerUnavailable,),
        )
        program = Worker(loaded, broker, settings)
        health = _worker_health(program, broker, settings)
        await health.start(connection.health_address)
        try:
            await program.run(stop)
        finally:
            await health.stop()
            await broker.close()

    _run("headway-worker", serve())


@click.command()
@_database_option
def migrate(**flags: Any) -> None:
    """Bring the database's schemas up to date."""
    settings = read_settings.read(DatabaseSettings, os.environ, **flags)

    async def apply() -> list[str]:
        database = await Database.connect(settings.database_url, name="headway-migrate")
        try:
            return await apply_migrations(database)
        finally:
            await database.close()

    applied = run(apply())
    for step in applied:
        click.echo(f"applied {step}")
    if not applied:
        click.echo("the schemas are up to date")


@click.command()
@_nats_option
@click.option("--replicas", "stream_replicas", type=int, help="[HEADWAY_STREAM_REPLICAS]")
@click.option("--max-bytes", "stream_max_bytes", type=int, help="[HEADWAY_STREAM_MAX_BYTES]")
def provision(**flags: Any) -> None:
    """Make the streams and consumers in NATS."""
    settings = read_settings.read(
        DispatcherSettings, {**os.environ, "HEADWAY_DATABASE_URL": "unused"}, **flags
    )

    async def apply() -> list[str]:
        broker = await Broker.connect(
            settings.nats_url, name="headway-provision", credentials=settings.nats_creds
        )
        try:
            return await provision_streams(
                broker, replicas=settings.stream_replicas, max_bytes=settings.stream_max_bytes
            )
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


async def _until_signal(service: Service) -> None:
    stop = stop_on_signals()
    try:
        await stop.wait()
    finally:
        await service.stop()


def _worker_health(program: Worker, broker: Broker, settings: WorkerSettings) -> Health:
    async def broker_answers() -> str | None:
        try:
            await broker.ping()
        except BrokerUnavailable as error:
            return f"NATS: {error}"
        return None

    async def dispatcher_answers() -> str | None:
        silent = monotonic() - program.heart.last_reply
        if silent > settings.orphan_timeout_seconds / 2:
            return f"no dispatcher has answered for {silent:.0f} s"
        return None

    return Health("worker", live=[], ready=[broker_answers, dispatcher_answers])


def _run(service: str, main: Any) -> None:
    provider = start_exporting(service, os.environ)
    try:
        run(main)
    finally:
        if provider is not None:
            provider.shutdown()
