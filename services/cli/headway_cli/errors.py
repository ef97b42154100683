"""Report errors: a line for each problem, which names the thing and the remedy."""

import traceback
from pathlib import Path

import click

DEFECT = 1
BAD_INPUT = 2
INTERRUPTED = 130

# Exceptions whose message names the remedy, with the prefix of the message. By name: their modules
# are loaded if they were raised, and to load all others takes longer than most commands.
PREFIXES = {
    "ApiError": "NATS refuses (check HEADWAY_STREAM_REPLICAS and HEADWAY_STREAM_MAX_BYTES): ",
    "BrokerUnavailable": "NATS is not reachable (check HEADWAY_NATS_URL): ",
    "DatabaseUnavailable": "PostgreSQL is not reachable (check HEADWAY_DATABASE_URL): ",
    "InvalidSettings": "settings (environment or flags): ",
    "SessionsShared": "HEADWAY_DATABASE_URL: ",
    **dict.fromkeys(("AddressInUse", "AppNotFound", "AuthMissing", "EmbeddedError"), ""),
    **dict.fromkeys(("InvalidDefinitions", "InvalidName", "NothingRuns", "NotProvisioned"), ""),
    **dict.fromkeys(("PartEnded", "RequestFailed", "SchemaMismatch", "ServicesRun"), ""),
}


def report(error: Exception, *, debug: bool) -> int:
    """Print why a command ended, and return its exit code."""
    if isinstance(error, click.ClickException):
        return _report_usage(error)
    if isinstance(error, click.Abort):
        if str(error):
            click.echo(f"headway: {error}", err=True)
        return INTERRUPTED
    if debug:
        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    for line in explain(error):
        click.echo(line, err=True)
    return DEFECT if _prefix(error) is None else BAD_INPUT


def explain(error: Exception) -> list[str]:
    """Describe an error in lines; an exception that is not listed above is a defect."""
    prefix = _prefix(error)
    if prefix is not None:
        lines = (str(error) or type(error).__name__).splitlines()
        return [line if line.startswith(" ") else f"headway: {prefix}{line}" for line in lines]
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    message = " ".join(f"{type(error).__name__}: {error}".split())
    return [f"headway: unexpected error: {message}{place}; add --debug to see the traceback"]


def _prefix(error: Exception) -> str | None:
    """Return the prefix of an exception that is listed above, or of a subclass."""
    kinds = [kind for kind in type(error).__mro__ if kind.__module__.startswith("headway")]
    return next((PREFIXES[kind.__name__] for kind in kinds if kind.__name__ in PREFIXES), None)


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
