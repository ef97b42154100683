"""Commands with which operators change manifests, groups, jobs and applications."""

from datetime import datetime
from typing import Any, Literal

import click
from headway import Client
from headway.define.definitions import API_OWNER
from headway_clock import utc_now
from headway_contract.fields import Rate
from headway_contract.manifests import ManifestResult, ManifestStatus
from headway_decisions.capacity.rates import parse_rate
from headway_errors import Conflict, Rejected

from headway_cli.serve import names
from headway_cli.serve.session import Session, asking, command, shows_itself
from headway_cli.terminal import options
from headway_cli.terminal.output import confirm, counted, listed
from headway_cli.terminal.times import age_text

_LISTED = 20


def _switch(action: Literal["enable", "disable"]) -> click.Command:
    """Make the command that enables or disables manifests."""

    @names.choosing
    @options.yes_option
    def switch(session: Session, manifest_ids: tuple[str, ...], yes: bool, **chosen: Any) -> None:
        names.check_choice(manifest_ids, **chosen)
        if manifest_ids:
            _change_each(session, manifest_ids, getattr(Client, action))
        else:
            change_many(session, action, chosen, yes=yes)

    switch.__doc__ = f"""{action.capitalize()} manifests.

    With --group, --label or --all it shows the number of manifests and asks for confirmation.
    """
    return command(action)(switch)


def change_many(
    session: Session,
    action: Literal["enable", "disable", "run"],
    chosen: dict[str, Any],
    manifest_ids: tuple[str, ...] = (),
    *,
    yes: bool,
    key: str | None = None,
) -> None:
    """Ask for confirmation with the number of manifests, then change them."""

    def change(*, dry_run: bool) -> list[ManifestResult]:
        return session.ask(
            lambda client: client.change_many(
                *manifest_ids, action=action, dry_run=dry_run, key=key, **chosen
            )
        )

    def describe() -> str:
        found = [result.manifest for result in change(dry_run=True)]
        return f"{action} {counted(len(found), 'manifest')} ({listed(found)})"

    confirm(describe, yes=yes)
    results = change(dry_run=False)
    session.print(results, lambda: _some([item.text for item in results if item.done]))
    if refused := [result.text for result in results if not result.done]:
        raise Conflict("\n".join(_some(refused)))


def _some(lines: list[str]) -> list[str]:
    more = [f"and {len(lines) - _LISTED} more"] if len(lines) > _LISTED else []
    return [*lines[:_LISTED], *more]


def _change_each(session: Session, manifest_ids: tuple[str, ...], act: Any) -> None:
    """Change manifests one after the other; refusals are raised together at the end."""
    done: list[Any] = []
    refused: list[str] = []

    async def ask(client: Client) -> None:
        for manifest_id in manifest_ids:
            try:
                done.append(await act(client, manifest_id))
            except Rejected as error:
                refused.append(str(error))
                continue
            if not session.as_json:
                click.echo(done[-1].text)

    session.ask(ask)
    if session.as_json and done:
        session.print(done, list)
    if refused:
        raise Conflict("\n".join(refused))


enable, disable = _switch("enable"), _switch("disable")


@command()
@click.argument("manifest_ids", metavar="ID...", nargs=-1, required=True)
@options.yes_option
def delete(session: Session, manifest_ids: tuple[str, ...], yes: bool) -> None:
    """Delete manifests that no code declares.

    They were created at run time, or their application no longer declares them and they were
    kept. This also deletes their work, dead letters and runs.
    """

    async def ask(client: Client) -> list[ManifestStatus]:
        return [(await client.manifest(manifest_id)).status for manifest_id in manifest_ids]

    def describe() -> str | None:
        found = [
            status
            for status in session.ask(ask)
            if status.owner == API_OWNER or not status.declared
        ]
        if not found:  # the scheduler will refuse it anyway
            return None
        listing = listed([status.external_id for status in found])
        return (
            f"delete {counted(len(found), 'manifest')} ({listing}) with all runs and dead letters, "
            f"{sum(status.outstanding for status in found)} of work under way"
        )

    confirm(describe, yes=yes)
    _change_each(session, manifest_ids, Client.delete)


def _give_back_option(*fields: str) -> options.Decorator:
    text, choice = "Reset this setting to the code's; may be repeated.", click.Choice(fields)
    return click.option("--reset", "give_back", type=choice, multiple=True, help=text)


@command()
@names.manifest_argument
@click.option("--attempts", type=click.IntRange(1), help="Attempts of its work.")
@options.seconds_option("--interval", "interval", "Wait before the second attempt.")
@options.seconds_option(
    "--jitter", "jitter", "Maximum random delay of a fire.", type=click.FloatRange(0, 86_400)
)
@_give_back_option("enabled", "attempts", "interval", "jitter", "retry")
def change(session: Session, manifest_id: str, **changes: Any) -> None:
    """Change the operator settings of a manifest."""
    _change(session, Client.change, manifest_id, **changes)


def _read_limit(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> int | Rate | Literal["none"] | None:
    """Read a number or a rate; `none` removes the limit."""
    if text is None or text.lower() == "none":
        return None if text is None else "none"
    if parameter.name == "rate":
        try:
            return parse_rate(text)
        except ValueError as error:
            raise click.BadParameter(f"{error}.", context, parameter) from error
    if text.isdecimal():
        return int(text)
    raise click.BadParameter(f"{text!r} is neither a number nor none.", context, parameter)


_limit_options = options.together(
    options.text(
        "--max-active", "N|none", "Concurrent runs; none removes the limit.", callback=_read_limit
    ),
    options.text(
        *("--rate", "N/UNIT|none", "Rate of starts, such as 100/minute; none removes the limit."),
        callback=_read_limit,
    ),
)


@command()
@click.argument("name", metavar="NAME")
@_limit_options
@click.option("--priority", type=options.PRIORITY, help="Rank among groups, from 0 to 31.")
@click.option("--enable/--disable", "enabled", default=None, help="Whether its manifests may run.")
@_give_back_option("max-active", "rate", "priority", "enabled")
def group(session: Session, name: str, **changes: Any) -> None:
    """Change the limits of a group."""
    _change(session, Client.change_group, name, **changes)


@command()
@click.argument("name", metavar="NAME")
@_limit_options
@_give_back_option("max-active", "rate")
def job(session: Session, name: str, **changes: Any) -> None:
    """Change the limits of a job, over all groups."""
    _change(session, Client.change_job, name, **changes)


def _change(
    session: Session, act: Any, name: str, *, give_back: tuple[str, ...], **changes: Any
) -> None:
    """Change the given fields of a manifest, group or job; `none` removes a limit."""
    given = {key: value for key, value in changes.items() if value is not None}
    if not given and not give_back:
        known = click.get_current_context().command.params
        flags = [
            flag
            for option in known
            if option.name in changes
            for flag in (*option.opts, *option.secondary_opts)
        ]
        raise click.UsageError(f"nothing to change: give {', '.join(flags)} or --reset")
    stated = {key: None if value == "none" else value for key, value in given.items()}
    fields = [field.replace("-", "_") for field in give_back]
    session.print_text(session.ask(lambda client: act(client, name, give_back=fields, **stated)))


_name_argument = click.argument("name", metavar="NAME")


@click.group(invoke_without_command=True)
@asking
@click.pass_context
def apps(context: click.Context, session: Session) -> None:
    """List applications; rename, retire or give back one.

    The source of an application is code, which declares it at every start, or applied files.
    """
    if shows_itself(context):
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
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
def _rename_command(session: Session, old: str, new: str) -> None:
    """Rename OLD to NEW; manifests, jobs and history are kept.

    Do this before you start code that calls itself NEW.
    """
    session.print_text(session.ask(lambda client: client.rename_app(old, new)))


@command("retire", of=apps)
@_name_argument
@options.yes_option
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
    """Let code declare an application again after files took it over."""
    session.print_text(session.ask(lambda client: client.give_back_app(name)))
