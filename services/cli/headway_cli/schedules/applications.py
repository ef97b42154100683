"""`headway apps`: applications, the source that declares each, and changes of them as a whole."""

from datetime import datetime

import click
import msgspec
from headway import Client
from headway_clock import utc_now
from headway_contract.routes import API
from headway_contract.scheduling import Changed
from msgspec import Struct

from headway_cli.terminal import ages
from headway_cli.terminal.completion import complete_apps
from headway_cli.terminal.confirm import confirm, yes_option
from headway_cli.terminal.connect import Reached, asking, json_option, print_json, print_lines
from headway_cli.terminal.tables import print_table
from headway_cli.up.summary import counted

_HEADINGS = ("APP", "SOURCE", "GENERATION", "MANIFESTS", "JOBS", "LAST DECLARED", "BY")


class AppStatus(Struct, frozen=True, kw_only=True):
    """An application in the list of the API, as far as it is shown here."""

    name: str
    source: str
    generation: int
    declared_at: datetime
    declared_by: str
    manifests: int
    jobs: int


@click.group(invoke_without_command=True)
@json_option
@asking
@click.pass_context
def apps(context: click.Context, reached: Reached, as_json: bool) -> None:
    """List applications; rename, retire or give one back.

    The source of an application is code, which declares it at every start, or files, which
    somebody applied.
    """
    if context.invoked_subcommand is not None:
        return
    found = reached.listed(f"{API}/apps")
    if as_json:
        print_json(found)
    elif not found:
        click.echo("no application is declared: start one with 'headway scheduler --app APP'")
    else:
        print_table(_HEADINGS, [_row(msgspec.convert(app, AppStatus)) for app in found])


@apps.command("rename")
@click.argument("old", metavar="OLD", shell_complete=complete_apps)
@click.argument("new", metavar="NEW")
@json_option
@asking
def _rename_command(reached: Reached, old: str, new: str, as_json: bool) -> None:
    """Give all that OLD owns to the name NEW, with its history.

    Do so before code that calls itself NEW starts.
    """

    async def ask(client: Client) -> Changed:
        return await client.rename_app(old, new)

    _print(reached.ask(ask), as_json=as_json)


@apps.command("retire")
@click.argument("name", metavar="NAME", shell_complete=complete_apps)
@yes_option
@json_option
@asking
def _retire_command(reached: Reached, name: str, yes: bool, as_json: bool) -> None:
    """Delete the manifests of an application, and retire its jobs.

    Runs and dead letters of its manifests go with them. Code that starts under this name declares
    it anew.
    """
    confirm(lambda: _lost(reached, name), yes=yes)

    async def ask(client: Client) -> Changed:
        return await client.retire_app(name)

    _print(reached.ask(ask), as_json=as_json)


@apps.command("give-back")
@click.argument("name", metavar="NAME", shell_complete=complete_apps)
@json_option
@asking
def _give_back_command(reached: Reached, name: str, as_json: bool) -> None:
    """Let code declare an application again that files took over."""

    async def ask(client: Client) -> Changed:
        return await client.give_back_app(name)

    _print(reached.ask(ask), as_json=as_json)


def _lost(reached: Reached, name: str) -> str | None:
    """What a retirement would take away; none if there is no such application."""
    found = [msgspec.convert(app, AppStatus) for app in reached.listed(f"{API}/apps")]
    for app in found:
        if app.name == name:
            manifests, jobs = counted(app.manifests, "manifest"), counted(app.jobs, "job")
            return (
                f"retire {name}: delete {manifests} with all runs and dead letters, retire {jobs}"
            )
    return None


def _print(changed: Changed, *, as_json: bool) -> None:
    if as_json:
        print_json(changed)
    else:
        print_lines([changed.text])


def _row(app: AppStatus) -> tuple[object, ...]:
    declared = f"{ages.told(app.declared_at, utc_now())} ago"
    by = app.declared_by.removeprefix("operator/")
    return (app.name, app.source, app.generation, app.manifests, app.jobs, declared, by)
