"""The plan of `up`: the app and all settings, read and checked before anything starts."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from headway.define.defaults import DefinitionSettings
from headway.define.definitions import Definitions
from headway.worker import WorkerSettings
from headway.yaml_file import YamlApp
from headway_console.public import ConsoleSettings, check_exposure
from headway_dispatcher.public import DispatcherSettings
from headway_scheduler.public import SchedulerSettings
from msgspec import Struct

from headway_cli.serve import settings
from headway_cli.serve.find_app import load_app

_ANY_PORT = "127.0.0.1:0"

# Placeholders for the addresses of embedded servers, which are known only when they run.
_EMBEDDED = {"HEADWAY_DATABASE_URL": "postgresql://", "HEADWAY_NATS_URL": "nats://embedded"}


class UpSettings(Struct, frozen=True, kw_only=True):
    """The settings of `up` itself; a server without a URL is embedded."""

    database_url: str | None = None
    nats_url: str | None = None
    nats_creds: str | None = None
    health_address: str | None = None
    worker_slots: int | None = None


class Plan(Struct, frozen=True, kw_only=True):
    """The app, and the settings of every part."""

    app: str
    has_bodies: bool
    worker_commands: Sequence[str]
    definitions: Definitions
    data: Path
    seconds: float | None
    wait: float
    settings: UpSettings
    scheduler: SchedulerSettings
    dispatcher: DispatcherSettings
    console: ConsoleSettings
    # Whether it follows changes of the app.
    reload: bool = False

    @property
    def reads_log(self) -> bool:
        """Whether log entries become lines for people, because no other format is asked for."""
        return os.environ.get("HEADWAY_LOG_FORMAT", "auto") in ("", "auto")


def make_plan(
    app: str, flags: Mapping[str, Any], *, worker_commands: Sequence[str], **terms: Any
) -> Plan:
    """Read the app and all settings; raises the problems of all parts together."""
    given = {name: value for name, value in os.environ.items() if value}
    # The console gets any free local port by default, and the streams are created, and small.
    local = {
        "HEADWAY_CONSOLE_ADDRESS": _ANY_PORT,
        "HEADWAY_PROVISION": "auto",
        "HEADWAY_STREAM_MAX_BYTES": str(settings.LOCAL_STREAM_BYTES),
    }
    environment = {**local, **_EMBEDDED, **given}
    parts = (UpSettings, SchedulerSettings, DispatcherSettings, ConsoleSettings, WorkerSettings)
    settings.check([*parts, DefinitionSettings], flags, environment)
    # The services cannot share one address: `up` serves it for all of them.
    shared = {**flags, "health_address": _ANY_PORT}
    if flags.get("console_port") is not None:
        shared["console_address"] = f"127.0.0.1:{flags['console_port']}"
    loaded = load_app(app)
    has_bodies = not isinstance(loaded, YamlApp)
    if not has_bodies and not worker_commands:
        raise click.UsageError(
            f"{app} declares jobs without bodies, so no worker would run them: name the program "
            "that does, as in --worker-command 'node worker.js'"
        )
    definitions = loaded.definitions(settings.read_defaults(environment))
    console = settings.read(ConsoleSettings, shared, environment)
    check_exposure(console)
    return Plan(
        app=app,
        has_bodies=has_bodies,
        worker_commands=worker_commands,
        definitions=definitions,
        settings=settings.read(UpSettings, flags, given),
        scheduler=settings.read(SchedulerSettings, shared, environment),
        dispatcher=settings.read(DispatcherSettings, shared, environment),
        console=console,
        **terms,
    )
