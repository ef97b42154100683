"""Faults as people read them: a line for each problem, with the thing and the remedy.

An exception that is named here was foreseen, and its message says what to do. Any other is a
defect of ours, or a fault nobody thought of; it is told in one line as well, with the place
where it happened. The traceback is for those who ask with `--debug`.
"""

import traceback
from pathlib import Path

import click
from headway.client.client import RequestFailed
from headway.define.definitions import InvalidDefinitions
from headway_console.settings import AuthMissing
from headway_contract import InvalidName
from headway_dispatcher.history.rebuild import ServicesRun
from headway_dispatcher.provisioning import NotProvisioned
from headway_embedded import EmbeddedError
from headway_jetstream_kit import BrokerUnavailable
from headway_jetstream_kit.connection import ApiError
from headway_postgres_kit import DatabaseUnavailable, SchemaMismatch, SessionsShared
from headway_service_kit.health import AddressInUse
from headway_service_kit.settings import InvalidSettings

from headway_cli.serve.find_app import AppNotFound
from headway_cli.serve.running import NothingRuns
from headway_cli.serve.wait_for_servers import Stopped
from headway_cli.up.worker_process import PartEnded

DEFECT = 1
BAD_INPUT = 2
INTERRUPTED = 130

# What a message needs in front of it to name the thing and the remedy.
_OPENINGS: dict[type[Exception], str] = {
    DatabaseUnavailable: "PostgreSQL is not reachable (check HEADWAY_DATABASE_URL): ",
    BrokerUnavailable: "NATS is not reachable (check HEADWAY_NATS_URL): ",
    ApiError: "NATS refuses (check HEADWAY_STREAM_REPLICAS and HEADWAY_STREAM_MAX_BYTES): ",
    InvalidSettings: "settings (environment or flags): ",
    AddressInUse: "",
    AppNotFound: "",
    AuthMissing: "",
    EmbeddedError: "",
    InvalidDefinitions: "",
    InvalidName: "",
    NotProvisioned: "",
    NothingRuns: "",
    PartEnded: "",
    RequestFailed: "",
    ServicesRun: "",
    SchemaMismatch: "",
    SessionsShared: "HEADWAY_DATABASE_URL: ",
}


def report_fault(error: Exception, *, debug: bool) -> int:
    """Tell a fault on standard error; returns the exit code."""
    if isinstance(error, Stopped):
        click.echo("headway: stopped before it had started", err=True)
        return INTERRUPTED
    if debug:
        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    for line in explain(error):
        click.echo(line, err=True)
    return BAD_INPUT if isinstance(error, tuple(_OPENINGS)) else DEFECT


def explain(error: Exception) -> list[str]:
    """The fault in lines; what is indented belongs to the line before."""
    for kind, opening in _OPENINGS.items():
        if isinstance(error, kind):
            lines = (str(error) or kind.__name__).splitlines()
            return [one if one.startswith(" ") else f"headway: {opening}{one}" for one in lines]
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    message = " ".join(f"{type(error).__name__}: {error}".split())
    return [f"headway: unforeseen: {message}{place}; run it with --debug to see the traceback"]


def report(error: Exception, *, debug: bool) -> int:
    """Say what has ended a command, and return its exit code."""
    if isinstance(error, click.ClickException):
        return report_misuse(error)
    if isinstance(error, click.Abort):
        return INTERRUPTED
    return report_fault(error, debug=debug)


def report_misuse(error: click.ClickException) -> int:
    """Tell what is wrong with the command line in one line; returns the exit code."""
    message = error.format_message()
    if isinstance(error, click.exceptions.NoArgsIsHelpError):  # the message is the whole help
        click.echo(message, err=True)
        return error.exit_code
    message = " ".join(message.split())
    if isinstance(error, click.UsageError) and error.ctx is not None:
        hint = f"see '{error.ctx.command_path} --help'"
        click.echo(f"headway: {message.rstrip('.')}; {hint}", err=True)
    else:
        click.echo(f"headway: {message}", err=True)
    return error.exit_code
