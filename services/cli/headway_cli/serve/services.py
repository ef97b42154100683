"""Commands that run a service, or prepare PostgreSQL and NATS for services."""

import os
from collections.abc import Coroutine
from typing import Any

import click
from headway.define.defaults import DefinitionSettings
from headway_console.public import ConsoleSettings
from headway_dispatcher.public import DispatcherSettings, provision_by
from headway_dispatcher.wiring import start_dispatcher
from headway_postgres_kit import SchemaMismatch
from headway_scheduler.public import SchedulerSettings, enqueue_role_is_missing
from headway_scheduler.wiring import start_scheduler
from headway_service_kit.process import keep_trying, run, stop_on_signals
from headway_service_kit.service import Service

from headway_cli.serve import settings
from headway_cli.serve.find_app import load_app
from headway_cli.serve.lifetime import exporting, unless_stopped
from headway_cli.serve.servers import (
    DatabaseSettings,
    apply_migrations,
    check_migrations,
    reach_broker,
    reach_database,
)
from headway_cli.terminal import options
from headway_cli.terminal.output import print_answer

_ROLE_IS_MISSING = """\
note: there is no role headway_enqueue, and this user may not create it. If applications enqueue
work in their own transactions, a user with that right must run:
  CREATE ROLE headway_enqueue NOLOGIN;
  GRANT USAGE ON SCHEMA headway TO headway_enqueue;
  GRANT EXECUTE ON FUNCTION headway.enqueue TO headway_enqueue;"""

_PRUNE, _TICK, _PROVISION = map(click.Choice, (options.PRUNE, ("on", "off"), ("auto", "manual")))
_COUNT = {"type": click.IntRange(1), "metavar": "N"}


@click.command()
@options.app_option
@options.database_option
@options.nats_option
@options.health_option
@options.setting("--prune", "prune", "Handling of manifests no longer declared.", type=_PRUNE)
@options.setting("--tick", "tick", "Off: declare and answer, but never fire.", type=_TICK)
@options.debug_option
def scheduler(app: str | None, **flags: Any) -> None:
    """Run a scheduler, which decides when work is due.

    It declares the manifests of your app when it starts; without an app it serves the declared
    manifests. Run as many as you like: one of them decides.
    """
    settings.check([SchedulerSettings, DefinitionSettings], flags)
    given = settings.read(SchedulerSettings, flags)
    app = app or os.environ.get("HEADWAY_APP")
    definitions = load_app(app).definitions(settings.read_defaults()) if app else None
    _serve("headway-scheduler", start_scheduler(given, definitions))


@click.command()
@options.database_option
@options.nats_option
@options.health_option
@options.setting(
    *("--provision", "provision"),
    "Create missing streams in NATS (auto), or only report them (manual).",
    type=_PROVISION,
)
@options.debug_option
def dispatcher(**flags: Any) -> None:
    """Run a dispatcher, which hands due work to workers.

    It respects the limits and follows work until it is settled. Run as many as you like: they
    share the work.
    """
    _serve("headway-dispatcher", start_dispatcher(settings.read(DispatcherSettings, flags)))


@click.command()
@options.database_option
@options.nats_option
@options.health_option
@options.setting(
    *("--address", "console_address"),
    "Address to serve; anything but loopback needs authentication.",
    metavar="HOST:PORT",
)
@options.setting(
    "--tokens", "api_tokens_file", "File of API tokens; see 'headway token new'.", metavar="FILE"
)
@options.debug_option
def console(**flags: Any) -> None:
    """Run a console: the HTTP API and the web pages.

    It only reads the database; the scheduler and the dispatcher make all changes. Run as many as
    you like.
    """
    # Not above: loading it takes half a second.
    from headway_console.wiring import start_console  # noqa: PLC0415

    _serve("headway-console", start_console(settings.read(ConsoleSettings, flags)))


@click.command()
@options.database_option
@options.wait_option
@options.flag("--check", "Change nothing: wait until another process has migrated, or fail.")
@options.json_option
@options.debug_option
def migrate(wait: float, check: bool, as_json: bool, **flags: Any) -> None:
    """Bring the schemas in PostgreSQL up to date.

    Run it before you start services of a new version. Migrations go forward only; applied ones
    are skipped.
    """
    url = settings.read(DatabaseSettings, flags).database_url

    async def apply() -> None:
        async with reach_database(url, name="headway-migrate", wait=wait) as database:
            applied: list[str] = []
            if check:
                await keep_trying(
                    lambda: check_migrations(database),
                    what="the schemas are not up to date",
                    faults=(SchemaMismatch,),
                    within=wait,
                )
            else:
                applied = await apply_migrations(database)
            role_is_missing = not check and await enqueue_role_is_missing(database)
            lines = [f"applied {step}" for step in applied] or ["the schemas are up to date"]
            lines += _ROLE_IS_MISSING.splitlines() if role_is_missing else []
            answer = {"applied": applied, "enqueue_role_is_missing": role_is_missing}
            print_answer(answer, lambda: lines, as_json=as_json)

    run(apply())


@click.command()
@options.nats_option
@options.setting("--replicas", "stream_replicas", "Copies of each stream.", **_COUNT)
@options.setting("--max-bytes", "stream_max_bytes", "Maximum size of a stream.", **_COUNT)
@options.wait_option
@options.json_option
@options.debug_option
def provision(wait: float, as_json: bool, **flags: Any) -> None:
    """Create or update the streams and consumers in NATS.

    Messages in existing streams are kept.
    """
    # The dispatcher's settings, but its database is not needed here.
    environment = {**os.environ, "HEADWAY_DATABASE_URL": "postgresql://"}
    given = settings.read(DispatcherSettings, flags, environment)

    async def apply() -> None:
        terms: Any = {"credentials": given.nats_creds, "wait": wait}
        async with reach_broker(given.nats_url, name="headway-provision", **terms) as broker:
            changed = await provision_by(broker, given)
        line = f"made {', '.join(changed)}" if changed else "everything is in place"
        print_answer({"made": list(changed)}, lambda: [line], as_json=as_json)

    run(apply())


def _serve(name: str, start: Coroutine[Any, Any, Service]) -> None:
    """Run a service until a signal comes, also while it starts."""

    async def serve() -> None:
        stop = stop_on_signals()
        service = await unless_stopped(start, stop)
        await service.run_until(stop)

    with exporting(name):
        run(serve())
