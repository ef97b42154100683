"""Report errors: a line for each problem, which names the thing and the remedy."""

import traceback
from pathlib import Path

import click
from headway.client.client import RequestFailed
from headway.define.definitions import InvalidDefinitions
from headway_console.public import AuthMissing
from headway_contract import InvalidName
from headway_dispatcher.public import NotProvisioned, ServicesRun
from headway_embedded import EmbeddedError
from headway_jetstream_kit import BrokerUnavailable
from headway_jetstream_kit.connection import ApiError
from headway_postgres_kit import DatabaseUnavailable, SchemaMismatch, SessionsShared
from headway_service_kit.health import AddressInUse
from headway_service_kit.settings import InvalidSettings

from headway_cli.serve.find_app import AppNotFound
from headway_cli.serve.running import NothingRuns, PartEnded
from headway_cli.serve.servers import Stopped

DEFECT = 1
BAD_INPUT = 2
INTERRUPTED = 130

# Exceptions whose message names the remedy, with what the message needs in front of it.
_PREFIXES: dict[type[Exception], str] = {
    DatabaseUnavailable: "PostgreSQL is not reachable (check HEADWAY_DATABASE_URL): ",
    BrokerUnavailable: "NATS is not reachable (check HEADWAY_NATS_URL): ",
    ApiError: "NATS refuses (check HEADWAY_STREAM_REPLICAS and HEADWAY_STREAM_MAX_BYTES): ",
    InvalidSettings: "settings (environment or flags): ",
    SessionsShared: "HEADWAY_DATABASE_URL: ",
    **dict.fromkeys(
        (
            *(AddressInUse, AppNotFound, AuthMissing, EmbeddedError, InvalidDefinitions),
            *(InvalidName, NotProvisioned, NothingRuns, PartEnded, RequestFailed, ServicesRun),
            SchemaMismatch,
        ),
        "",
    ),
}


def report(error: Exception, *, debug: bool) -> int:
    """Print why a command ended, and return its exit code."""
    if isinstance(error, click.ClickException):
        return _report_usage(error)
    if isinstance(error, click.Abort):
        return INTERRUPTED
    if isinstance(error, Stopped):
        click.echo("headway: stopped before it had started", err=True)
        return INTERRUPTED
    if debug:
        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    for line in explain(error):
        click.echo(line, err=True)
    return BAD_INPUT if isinstance(error, tuple(_PREFIXES)) else DEFECT


def explain(error: Exception) -> list[str]:
    """Describe an error in lines; an exception that is not listed above is a defect."""
    for kind, prefix in _PREFIXES.items():
        if isinstance(error, kind):
            lines = (str(error) or kind.__name__).splitlines()
            return [line if line.startswith(" ") else f"headway: {prefix}{line}" for line in lines]
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    message = " ".join(f"{type(error).__name__}: {error}".split())
    return [f"headway: unexpected error: {message}{place}; add --debug to see the traceback"]


def _report_usage(error: click.ClickException) -> int:
    """Print an error in the command line as one line."""
    message = error.format_message()
    if isinstance(error, click.exceptions.NoArgsIsHelpError):  # the message is the whole help
        click.echo(message, err=True)
        return error.exit_code
    message = " ".join(message.split())
    if isinstance(error, click.UsageError) and error.ctx is not None:
        message = f"{message.rstrip('.')}; see '{error.ctx.command_path} --help'"
    click.echo(f"headway: {message}", err=True)
    return error.exit_code
