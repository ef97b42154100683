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

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def setting(flag: str, name: str, description: str, **attributes: Any) -> Decorator:
    """An option that stands for the setting `HEADWAY_<NAME>`; the flag wins."""
    described = f"{description} [HEADWAY_{name.upper()}]"
    return click.option(flag, name, help=described, **attributes)


def _seconds(
    context: click.Context, parameter: click.Parameter, value: float | None
) -> float | None:
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is no number of seconds.", context, parameter)
    return value


def seconds_option(flag: str, name: str, description: str, **attributes: Any) -> Decorator:
    """An option that takes a number of seconds."""
    return click.option(
        flag, name, metavar="SECONDS", callback=_seconds, help=description, **attributes
    )


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


def read_json(given: str, hint: str = "'--input'") -> Any:
    """A value that was given as JSON."""
    try:
        return json.loads(given)
    except (json.JSONDecodeError, RecursionError) as error:
        raise click.BadParameter(
            f"{given[:100]!r} is no JSON ({error}): text needs quotes, as in '\"text\"'",
            param_hint=hint,
        ) from error


def identity(context: click.Context, parameter: click.Parameter, given: Any) -> Any:
    """Ids as users paste them; anything else is told with what it looks like."""
    if isinstance(given, tuple):
        return tuple(identity(context, parameter, one) for one in given)
    try:
        return None if given is None else UUID(given)
    except ValueError:
        raise click.BadParameter(
            f"{given!r} is no id: ids look like 0f0e7c1a-5b1f-4a8e-9c51-2d9d1c9f7e55",
            context,
            parameter,
        ) from None


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
url_option = setting(
    "--url", "url", "Which Headway to ask; with the token of HEADWAY_TOKEN.", metavar="URL"
)
console_option = click.option(
    "--console-port",
    "console_port",
    type=click.IntRange(0, 65_535),
    metavar="N",
    help="Where the console and the API are served; on a free port without it, kept for next time.",
)
health_option = setting(
    "--health-address",
    "health_address",
    "Where to answer /livez, /readyz and /metrics; without it on any free port.",
    metavar="HOST:PORT",
)
slots_option = setting(
    "--slots", "worker_slots", "How many runs at once.", type=click.IntRange(min=1), metavar="N"
)
wait_option = seconds_option(
    "--wait",
    "wait",
    "How long to try to reach the servers.",
    type=click.FloatRange(min=0),
    default=10.0,
    show_default=True,
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

running_data_option = click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(".headway"),
    show_default=True,
    help="The data folder of the 'headway up' to ask, if no URL is given.",
)
