"""Options that several commands share, each under one name with one meaning."""

import functools
import json
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast, get_args
from uuid import UUID

import click
from headway_contract.fields import begins_id
from headway_service_kit.process import LogForm, log_to_stderr
from msgspec import Struct

from headway_cli.terminal.times import MOMENT_HELP, read_past

Command = Callable[..., Any]
Decorator = Callable[[Command], Command]

POSITIVE = click.FloatRange(min=0, min_open=True)
PRUNE = ("delete", "disable", "keep")


def together(*decorators: Decorator) -> Decorator:
    """Combine options into one decorator; help lists them in this order."""

    def decorate(command: Command) -> Command:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


def setting(flag: str, name: str, description: str, **attributes: Any) -> Decorator:
    """Declare an option for the setting `HEADWAY_<NAME>`; the flag wins."""
    described = f"{description} [HEADWAY_{name.upper()}]"
    return click.option(flag, name, help=described, **attributes)


def collected(name: str, struct: type[Struct], *declared: Decorator) -> Decorator:
    """Declare options, the last in the help, and pass them to the command as one struct."""

    def decorate(command: Command) -> Command:
        others = vars(command).pop("__click_params__", [])

        @functools.wraps(command)
        def called(*arguments: Any, **values: Any) -> Any:
            known = {field: values.pop(field) for field in struct.__struct_fields__}
            return command(*arguments, **{name: struct(**known)}, **values)

        together(*declared)(called)
        vars(called)["__click_params__"] += others
        return called

    return decorate


def flag(name: str, description: str, parameter: str | None = None) -> Decorator:
    """Declare an option without a value."""
    names = (name,) if parameter is None else (name, parameter)
    return click.option(*names, is_flag=True, help=description)


def text(name: str, metavar: str, description: str, **attributes: Any) -> Decorator:
    """Declare an option that takes a text."""
    return click.option(name, metavar=metavar, help=description, **attributes)


def choice(name: str, values: Sequence[str], description: str, **attributes: Any) -> Decorator:
    """Declare an option that takes one of some words."""
    attributes = {"type": click.Choice(values), "show_default": True, **attributes}
    return click.option(name, help=description, **attributes)


def repeated(flag: str, name: str, metavar: str, description: str, **attributes: Any) -> Decorator:
    """Declare an option that may be repeated."""
    attributes = {"metavar": metavar, "multiple": True, **attributes}
    return click.option(flag, name, help=description, **attributes)


def seconds_option(flag: str, name: str, description: str, **attributes: Any) -> Decorator:
    """Declare an option that takes a number of seconds."""

    def check(context: click.Context, parameter: click.Parameter, value: float | None) -> Any:
        if value is not None and not math.isfinite(value):
            raise click.BadParameter(f"{value} is not a number of seconds.", context, parameter)
        return value

    attributes = {"type": click.FloatRange(min=0), "metavar": "SECONDS", **attributes}
    return click.option(flag, name, callback=check, help=description, **attributes)


def start_logging(*, debug: bool = False) -> None:
    """Log to standard error in the format that HEADWAY_LOG_FORMAT names."""
    chosen = os.environ.get("HEADWAY_LOG_FORMAT") or "auto"
    if chosen not in get_args(LogForm):
        raise click.UsageError(
            f"HEADWAY_LOG_FORMAT: {chosen!r} is not a log format: use auto, json or text"
        )
    log_to_stderr(debug=debug, form=cast("LogForm", chosen))


def read_json(text: str, hint: str = "'--input'") -> Any:
    """Read the JSON value of an option."""
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise click.BadParameter(
            f"{text[:100]!r} is not JSON ({error}): text needs quotes, as in '\"text\"'",
            param_hint=hint,
        ) from error


def identity(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Read ids (UUIDs), or beginnings of them, which the console completes."""
    if isinstance(value, tuple):
        return tuple(identity(context, parameter, item) for item in value)
    try:
        return None if value is None else UUID(value)
    except ValueError:
        if begins_id(value):
            return value
        problem = (
            f"invalid id {value!r}: ids look like 0f0e7c1a-5b1f-4a8e-9c51-2d9d1c9f7e55; the first "
            "4 digits or more are enough if no other id begins so"
        )
        raise click.BadParameter(problem, context, parameter) from None


def id_option(flag: str, description: str) -> Decorator:
    """Declare an option that takes an id."""
    return click.option(flag, callback=identity, metavar="ID", help=description)


def read_pairs(
    context: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> dict[str, str]:
    """Read repeated NAME=VALUE pairs."""
    pairs = [text.partition("=") for text in value]
    for name, equals, rest in pairs:
        if not name or not equals:
            problem = f"invalid pair {name + equals + rest!r}: write NAME=VALUE"
            raise click.BadParameter(problem, context, parameter)
    return {name: rest for name, _, rest in pairs}


def pairs(name: str, parameter: str, metavar: str, description: str) -> Decorator:
    """Declare an option that takes NAME=VALUE, and may be repeated."""
    return repeated(name, parameter, metavar, description, callback=read_pairs)


def data_option(description: str) -> Decorator:
    """Declare `--data`, the data folder of a `headway up`."""
    folder, usual = click.Path(path_type=Path, file_okay=False), Path(".headway")
    return click.option("--data", type=folder, default=usual, show_default=True, help=description)


def number(name: str, kind: Any, description: str, *, usual: float, **attributes: Any) -> Decorator:
    """Declare an option that takes a number, by default the usual one."""
    attributes = {"type": kind, "default": usual, "show_default": True, **attributes}
    return click.option(name, help=description, **attributes)


def count_option(description: str, *, least: int = 1, most: int = 10_000, usual: int) -> Decorator:
    """Declare `-n`, the size of a list."""
    size = click.IntRange(least, most)
    return click.option("-n", "most", type=size, default=usual, show_default=True, help=description)


debug_option = click.option(
    "--debug",
    is_flag=True,
    envvar="HEADWAY_DEBUG",
    expose_value=False,
    is_eager=True,
    callback=lambda _context, _parameter, value: start_logging(debug=True) if value else None,
    help="Log more, and show tracebacks.",
)
app_option = setting("--app", "app", "Your app: file.py, module or module:name.", metavar="APP")
database_option = setting("--database-url", "database_url", "PostgreSQL.", metavar="URL")
nats_option = setting("--nats-url", "nats_url", "NATS.", metavar="URL")
_health_help = "Address of /livez, /readyz and /metrics; by default any free port."
health_option = setting("--health-address", "health_address", _health_help, metavar="HOST:PORT")
slots_option = setting(
    "--slots", "worker_slots", "Concurrent runs.", type=click.IntRange(min=1), metavar="N"
)
json_option = flag("--json", "Print JSON.", "as_json")
yes_option = flag("--yes", "Do not ask for confirmation.")
PRIORITY = click.IntRange(0, 31)
priority_option = click.option("--priority", type=PRIORITY, help="Priority from 0 to 31.")
wait_option = seconds_option(
    "--wait", "wait", "How long to try to reach the servers.", default=10.0, show_default=True
)
_past: Any = {"metavar": "AGE|TIME", "callback": read_past}
since_option = text("--since", description=f"From then on. {MOMENT_HELP}", **_past)
until_option = text("--until", description=f"Before then. {MOMENT_HELP}", **_past)
most_option = count_option("How many to list.", usual=50)
