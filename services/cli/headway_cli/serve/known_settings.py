"""Every setting, by the process that reads it."""

import os
from typing import Annotated, Literal, TypeVar

from headway.define.defaults import DefinitionSettings
from headway_console.public import ConsoleSettings
from headway_dispatcher.public import DispatcherSettings
from headway_scheduler.public import SchedulerSettings
from headway_service_kit.settings import SECRET, ServiceSettings
from headway_service_kit.settings_text import Effective, look
from msgspec import Meta, Struct

from headway_cli.serve.settings import CHECKS
from headway_cli.serve.worker import WorkerProgramSettings

T = TypeVar("T")


class CommandSettings(Struct, frozen=True, kw_only=True):
    """The settings of every command."""

    app: Annotated[
        str | None,
        Meta(
            description="Your app: `file.py`, `module` or `module:name`, or a YAML file. The "
            "scheduler declares it, workers run its jobs."
        ),
    ] = None
    url: Annotated[str | None, Meta(description="URL of the console that commands call.")] = None
    token: Annotated[
        str | None,
        Meta(description="Token for that console; see `headway token new`.", extra=SECRET),
    ] = None
    debug: Annotated[bool, Meta(description="Log more, and show tracebacks.")] = False
    log_format: Annotated[
        Literal["auto", "json", "text"],
        Meta(
            description="Format of the log: `auto` is text at a terminal, else JSON; "
            "`headway up` prints lines for people."
        ),
    ] = "auto"


class Section(Struct, frozen=True):
    """The settings of one struct, without those of another section."""

    name: str
    title: str
    struct: type[Struct]
    but: type[Struct] | None = None


SECTIONS = (
    Section("commands", "Every command", CommandSettings),
    Section("services", "Scheduler and dispatcher", ServiceSettings),
    Section("scheduler", "Scheduler", SchedulerSettings, but=ServiceSettings),
    Section("dispatcher", "Dispatcher", DispatcherSettings, but=ServiceSettings),
    Section("console", "Console", ConsoleSettings, but=ServiceSettings),
    Section("worker", "Worker", WorkerProgramSettings, but=CommandSettings),
    Section("definitions", "Defaults of definitions", DefinitionSettings),
)


def settings_of(section: Section) -> list[Effective]:
    """Return the settings of a section that are in effect here, with the problem of each."""
    return of_section(section, look(section.struct, os.environ, CHECKS))


def is_wrong(setting: Effective) -> bool:
    """Return whether a setting was given and cannot be read."""
    return setting.problem is not None and setting.problem != "not set"


def of_section(section: Section, settings: list[T]) -> list[T]:
    """Leave out the settings that another section has."""
    other = section.but.__struct_fields__ if section.but is not None else ()
    named = zip(section.struct.__struct_fields__, settings, strict=True)
    return [setting for name, setting in named if name not in other]
