"""`headway apps`: applications, the source that declares each, and changes of them as a whole."""

from datetime import datetime

import click
from headway_clock import utc_now

from headway_cli.serve.names import complete_apps
from headway_cli.serve.session import Session, asking, command
from headway_cli.terminal.interaction import confirm, yes_option
from headway_cli.terminal.output import counted
from headway_cli.terminal.times import age_text

_name_argument = click.argument("name", metavar="NAME", shell_complete=complete_apps)


@click.group(invoke_without_command=True)
@asking
@click.pass_context
def apps(context: click.Context, session: Session) -> None:
    """List applications; rename, retire or give back one.

    The source of an application is code, which declares it at every start, or applied files.
    """
    if context.invoked_subcommand is None:
        session.print_items(
            session.read_list("/apps"),
            ("APP", "SOURCE", "GENERATION", "MANIFESTS", "JOBS", "LAST DECLARED", "BY"),
            lambda app: (
                *(app["name"], app["source"], app["generation"], app["manifests"], app["jobs"]),
                f"{age_text(datetime.fromisoformat(app['declared_at']), utc_now())} ago",
                app["declared_by"].removeprefix("operator/"),
            ),
            empty="no application is declared: start one with 'headway scheduler --app APP'",
        )


@command("rename", of=apps)
@click.argument("old", metavar="OLD", shell_complete=complete_apps)
@click.argument("new", metavar="NEW")
def _rename_command(session: Session, old: str, new: str) -> None:
    """Rename OLD to NEW; manifests, jobs and history are kept.

    Do this before you start code that calls itself NEW.
    """
    session.print_text(session.ask(lambda client: client.rename_app(old, new)))


@command("retire", of=apps)
@_name_argument
@yes_option
def _retire_command(session: Session, name: str, yes: bool) -> None:
    """Delete the manifests of an application, and retire its jobs.

    This also deletes the runs and dead letters of its manifests. Code that starts under this name
    declares the application again.
    """

    def describe() -> str | None:
        for app in session.read_list("/apps"):
            if app["name"] == name:
                return (
                    f"retire {name}: delete {counted(app['manifests'], 'manifest')} with all runs "
                    f"and dead letters, retire {counted(app['jobs'], 'job')}"
                )
        return None

    confirm(describe, yes=yes)
    session.print_text(session.ask(lambda client: client.retire_app(name)))


@command("give-back", of=apps)
@_name_argument
def _give_back_command(session: Session, name: str) -> None:
    """Let code declare an application again that files took over."""
    session.print_text(session.ask(lambda client: client.give_back_app(name)))
