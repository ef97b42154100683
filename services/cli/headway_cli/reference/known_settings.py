"""Every setting, by the process that reads it."""

import os
from typing import Annotated, Literal, TypeVar

from headway.define.defaults import DefinitionSettings
from headway_console.public import ConsoleSettings
from headway_dispatcher.public import DispatcherSettings
from headway_scheduler.public import SchedulerSettings
from headway_service_kit.settings import SECRET, InvalidSettings, ServiceSettings
from headway_service_kit.settings_text import Described, Effective, describe, look
from msgspec import Meta, Struct
from msgspec.structs import replace

from headway_cli.serve.settings import check
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
    url: Annotated[
        str | None,
        Meta(description="URL of the console that commands ask."),
    ] = None
    token: Annotated[
        str | None,
        Meta(description="Token for that console; see `headway token new`.", extra=SECRET),
    ] = None
    debug: Annotated[bool, Meta(description="Log more, and show tracebacks.")] = False
    log_format: Annotated[
        Literal["auto", "json", "text"],
        Meta(description="Format of the log: `auto` is text at a terminal, else JSON."),
    ] = "auto"


class Section(Struct, frozen=True, kw_only=True):
    """The settings of one struct, without those of another section."""

    name: str
    title: str
    about: str
    struct: type[Struct]
    but: type[Struct] | None = None


SECTIONS = (
    Section(
        name="commands",
        title="Every command",
        about="Every command that needs a server also reads `HEADWAY_DATABASE_URL` and "
        "`HEADWAY_NATS_URL` of the next table; without them it looks for a `headway up` in this "
        "folder.",
        struct=CommandSettings,
    ),
    Section(
        name="services",
        title="Scheduler and dispatcher",
        about="`headway up` needs none of these: it starts PostgreSQL and NATS where no URL is "
        "given.",
        struct=ServiceSettings,
    ),
    Section(
        name="scheduler",
        title="Scheduler",
        about="Read by `headway scheduler` and `headway up`.",
        struct=SchedulerSettings,
        but=ServiceSettings,
    ),
    Section(
        name="dispatcher",
        title="Dispatcher",
        about="Read by `headway dispatcher` and `headway up`; those of streams also by "
        "`headway provision`.",
        struct=DispatcherSettings,
        but=ServiceSettings,
    ),
    Section(
        name="console",
        title="Console",
        about="Read by `headway console` and `headway up`.",
        struct=ConsoleSettings,
        but=ServiceSettings,
    ),
    Section(
        name="worker",
        title="Worker",
        about="Read by `headway worker`, and by the worker of `headway up`, which has a health "
        "address of its own.",
        struct=WorkerProgramSettings,
        but=CommandSettings,
    ),
    Section(
        name="definitions",
        title="Defaults of definitions",
        about="Read by the commands that declare an app: `headway scheduler`, `up`, `plan` and "
        "`apply`, which should agree. The most specific value wins: the manifest's, its "
        'cadence\'s, its job\'s, the app\'s own (`App("name", defaults={"timeout": 60})`, in YAML '
        "`defaults:`), and only then these. Manifests that are created at run time use the values "
        "of their job. A value that an operator has changed keeps the operator's.",
        struct=DefinitionSettings,
    ),
)


def described(section: Section) -> list[Described]:
    """Describe the settings of a section."""
    return _of_section(section, describe(section.struct))


def settings_of(section: Section) -> list[Effective]:
    """Return the settings of a section that are in effect here, with the problem of each."""
    problems = _problems(section)
    return [
        replace(setting, problem=setting.problem or problems.get(setting.variable))
        for setting in _of_section(section, look(section.struct, os.environ))
    ]


def is_wrong(setting: Effective) -> bool:
    """Return whether a setting was given and cannot be read."""
    return setting.problem is not None and setting.problem != "not set"


def _of_section(section: Section, settings: list[T]) -> list[T]:
    other = section.but.__struct_fields__ if section.but is not None else ()
    named = zip(section.struct.__struct_fields__, settings, strict=True)
    return [setting for name, setting in named if name not in other]


def _problems(section: Section) -> dict[str, str]:
    """Return what a service would refuse when it starts, by variable."""
    try:
        check([section.struct], {}, os.environ)
    except InvalidSettings as error:
        lines = (line.partition(": ") for line in str(error).splitlines())
        return {variable: problem for variable, _, problem in lines}
    return {}
