"""`headway apps`: applications, the source that declares each, and changes of them as a whole."""

from datetime import datetime
from typing import Any

import click
import msgspec
from headway_clock import utc_now
from headway_contract.http import API
from msgspec import Struct

from headway_cli.serve.completion import complete_apps
from headway_cli.serve.session import Session, asking
from headway_cli.terminal.interaction import confirm, yes_option
from headway_cli.terminal.output import counted
from headway_cli.terminal.times import age_text

_name_argument = click.argument("name", metavar="NAME", shell_complete=complete_apps)


class AppStatus(Struct, frozen=True, kw_only=True):
    """The fields of an application that the table shows."""

    name: str
    source: str
    generation: int
    declared_at: datetime
    declared_by: str
    manifests: int
    jobs: int


@click.group(invoke_without_command=True)
@asking
@click.pass_context
def apps(context: click.Context, session: Session) -> None:
    """List applications; rename, retire or give back one.

    The source of an application is code, which declares it at every start, or files, which
    somebody applied.
    """
    if context.invoked_subcommand is None:
        session.print_items(
            session.read_list(f"{API}/apps"),
            ("APP", "SOURCE", "GENERATION", "MANIFESTS", "JOBS", "LAST DECLARED", "BY"),
            _row,
            empty="no application is declared: start one with 'headway scheduler --app APP'",
        )


@apps.command("rename")
@click.argument("old", metavar="OLD", shell_complete=complete_apps)
@click.argument("new", metavar="NEW")
@asking
def _rename_command(session: Session, old: str, new: str) -> None:
    """Rename OLD to NEW; manifests, jobs and history are kept.

    Do this before you start code that calls itself NEW.
    """
    session.print_text(session.ask(lambda client: client.rename_app(old, new)))


@apps.command("retire")
@_name_argument
@yes_option
@asking
def _retire_command(session: Session, name: str, yes: bool) -> None:
    """Delete the manifests of an application, and retire its jobs.

    This also deletes the runs and dead letters of its manifests. Code that starts under this name
    declares the application again.
    """
    confirm(lambda: _describe_retirement(session, name), yes=yes)
    session.print_text(session.ask(lambda client: client.retire_app(name)))


@apps.command("give-back")
@_name_argument
@asking
def _give_back_command(session: Session, name: str) -> None:
    """Let code declare an application again that files took over."""
    session.print_text(session.ask(lambda client: client.give_back_app(name)))


def _describe_retirement(session: Session, name: str) -> str | None:
    for item in session.read_list(f"{API}/apps"):
        app = msgspec.convert(item, AppStatus)
        if app.name == name:
            return (
                f"retire {name}: delete {counted(app.manifests, 'manifest')} with all runs and "
                f"dead letters, retire {counted(app.jobs, 'job')}"
            )
    return None


def _row(item: Any) -> tuple[object, ...]:
    app = msgspec.convert(item, AppStatus)
    declared = f"{age_text(app.declared_at, utc_now())} ago"
    by = app.declared_by.removeprefix("operator/")
    return (app.name, app.source, app.generation, app.manifests, app.jobs, declared, by)
