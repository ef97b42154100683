"""Every setting there is, by who heeds it."""

from typing import Annotated, Literal

from headway.define.defaults import DefinitionSettings
from headway_console.settings import ConsoleSettings
from headway_dispatcher.settings import DispatcherSettings
from headway_scheduler.settings import SchedulerSettings
from headway_service_kit.settings import SECRET, ServiceSettings
from headway_service_kit.settings_text import Described, describe
from msgspec import Meta, Struct

from headway_cli.serve.services import WorkerProgramSettings


class CommandSettings(Struct, frozen=True, kw_only=True):
    """What every command heeds."""

    app: Annotated[
        str | None,
        Meta(
            description="Your app: `file.py`, `module` or `module:name`, or a YAML file. The "
            "scheduler declares it, workers run its jobs."
        ),
    ] = None
    url: Annotated[
        str | None,
        Meta(description="The address of a console: commands ask there, over HTTP, if it is set."),
    ] = None
    token: Annotated[
        str | None, Meta(description="Who asks there; see `headway token new`.", extra=SECRET)
    ] = None
    debug: Annotated[bool, Meta(description="Log more, and show tracebacks.")] = False
    log_format: Annotated[
        Literal["auto", "json", "text"],
        Meta(description="Format of the log: `auto` is text at a terminal, else JSON."),
    ] = "auto"


class Section(Struct, frozen=True, kw_only=True):
    """The settings of one struct, without those that another section tells."""

    name: str
    title: str
    about: str
    struct: type[Struct]
    but: type[Struct] | None = None


SECTIONS = (
    Section(
        name="commands",
        title="Every command",
        about="`HEADWAY_DATABASE_URL` and `HEADWAY_NATS_URL` of the next table are heeded by every "
        "command that needs them; without them commands look for a `headway up` in this folder.",
        struct=CommandSettings,
    ),
    Section(
        name="services",
        title="Scheduler and dispatcher",
        about="`headway up` needs none of these: it brings PostgreSQL and NATS along where no URL "
        "is given.",
        struct=ServiceSettings,
    ),
    Section(
        name="scheduler",
        title="Scheduler",
        about="Heeded by `headway scheduler` and `headway up`.",
        struct=SchedulerSettings,
        but=ServiceSettings,
    ),
    Section(
        name="dispatcher",
        title="Dispatcher",
        about="Heeded by `headway dispatcher` and `headway up`; those of streams also by "
        "`headway provision`.",
        struct=DispatcherSettings,
        but=ServiceSettings,
    ),
    Section(
        name="console",
        title="Console",
        about="Heeded by `headway console` and `headway up`.",
        struct=ConsoleSettings,
        but=ServiceSettings,
    ),
    Section(
        name="worker",
        title="Worker",
        about="Heeded by `headway worker`, and by the worker of `headway up`, which answers for "
        "health at an address of its own.",
        struct=WorkerProgramSettings,
        but=CommandSettings,
    ),
    Section(
        name="definitions",
        title="Defaults of definitions",
        about="Heeded by whoever declares an app: `headway scheduler`, `up`, `plan` and `apply`, "
        "which should agree. The nearest statement wins: the manifest's, its cadence's, its job's, "
        'the app\'s own (`App("name", defaults={"timeout": 60})`, in YAML `defaults:`), and '
        "only then these. Manifests that are made at run time take those of their job. What "
        "an operator has touched stays the operator's.",
        struct=DefinitionSettings,
    ),
)


def described(section: Section) -> list[Described]:
    """The settings that a section tells."""
    told = section.but.__struct_fields__ if section.but is not None else ()
    wanted = [name for name in section.struct.__struct_fields__ if name not in told]
    by_name = dict(zip(section.struct.__struct_fields__, describe(section.struct), strict=True))
    return [by_name[name] for name in wanted]
