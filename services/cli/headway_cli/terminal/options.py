"""Options that several commands share, each under one name with one meaning."""

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast, get_args
from uuid import UUID

import click
from headway_service_kit.process import LogForm, log_to_stderr

from headway_cli.terminal.times import MOMENT_HELP, PastMoment

Command = Callable[..., Any]
Decorator = Callable[[Command], Command]


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


def seconds_option(
    flag: str, name: str, description: str, *, least: float = 0, **attributes: Any
) -> Decorator:
    """Declare an option that takes a number of seconds."""
    attributes.setdefault("type", click.FloatRange(min=least))
    return click.option(
        flag, name, metavar="SECONDS", callback=_check_seconds, help=description, **attributes
    )


def _check_seconds(
    context: click.Context, parameter: click.Parameter, value: float | None
) -> float | None:
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is not a number of seconds.", context, parameter)
    return value


def start_logging(*, debug: bool = False) -> None:
    """Log to standard error in the format that HEADWAY_LOG_FORMAT names."""
    chosen = os.environ.get("HEADWAY_LOG_FORMAT") or "auto"
    if chosen not in get_args(LogForm):
        raise click.UsageError(
            f"HEADWAY_LOG_FORMAT: {chosen!r} is not a log format: use auto, json or text"
        )
    log_to_stderr(debug=debug, form=cast("LogForm", chosen))


def _log_more(context: click.Context, parameter: click.Parameter, value: bool) -> None:  # noqa: ARG001
    if value:
        start_logging(debug=True)


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
    """Read ids (UUIDs)."""
    if isinstance(value, tuple):
        return tuple(identity(context, parameter, item) for item in value)
    try:
        return None if value is None else UUID(value)
    except ValueError:
        raise click.BadParameter(
            f"invalid id {value!r}: ids look like 0f0e7c1a-5b1f-4a8e-9c51-2d9d1c9f7e55",
            context,
            parameter,
        ) from None


def read_pairs(
    context: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> dict[str, str]:
    """Read repeated NAME=VALUE pairs."""
    pairs = [text.partition("=") for text in value]
    for name, equals, rest in pairs:
        if not name or not equals:
            raise click.BadParameter(
                f"invalid pair {name + equals + rest!r}: write NAME=VALUE", context, parameter
            )
    return {name: rest for name, _, rest in pairs}


def data_option(description: str) -> Decorator:
    """Declare `--data`, the data folder of a `headway up`."""
    return click.option(
        "--data",
        type=click.Path(path_type=Path, file_okay=False),
        default=Path(".headway"),
        show_default=True,
        help=description,
    )


debug_option = click.option(
    "--debug",
    is_flag=True,
    envvar="HEADWAY_DEBUG",
    expose_value=False,
    is_eager=True,
    callback=_log_more,
    help="Log more, and show tracebacks.",
)
app_option = setting("--app", "app", "Your app: file.py, module or module:name.", metavar="APP")
database_option = setting("--database-url", "database_url", "PostgreSQL.", metavar="URL")
nats_option = setting("--nats-url", "nats_url", "NATS.", metavar="URL")
health_option = setting(
    "--health-address",
    "health_address",
    "Address of /livez, /readyz and /metrics; by default any free port.",
    metavar="HOST:PORT",
)
slots_option = setting(
    "--slots", "worker_slots", "Concurrent runs.", type=click.IntRange(min=1), metavar="N"
)
priority_option = click.option(
    "--priority", type=click.IntRange(0, 31), help="Priority from 0 to 31."
)
wait_option = seconds_option(
    "--wait", "wait", "How long to try to reach the servers.", default=10.0, show_default=True
)
since_option = click.option(
    "--since", type=PastMoment(), metavar="AGE|TIME", help=f"From then on. {MOMENT_HELP}"
)
until_option = click.option(
    "--until", type=PastMoment(), metavar="AGE|TIME", help=f"Before then. {MOMENT_HELP}"
)
most_option = click.option(
    "-n",
    "most",
    type=click.IntRange(1, 10_000),
    default=50,
    show_default=True,
    help="How many to list.",
)
