"""Commands by which operators change manifests and groups, or run them."""

from collections.abc import Awaitable, Callable
from typing import Any, Literal

import click
from headway import Client
from headway.control import Refused
from headway.definitions import API_OWNER
from headway_contract.scheduling import Changed, ManifestStatus, TriggerAnswer
from headway_contract.work import Rate
from headway_decisions.rates import parse_rate
from msgspec import UNSET

from headway_cli import options, outcomes
from headway_cli.asking import Reached, asking, json_option, print_json
from headway_cli.completion import complete_groups, complete_jobs, complete_manifests
from headway_cli.confirming import confirm, listed, yes_option
from headway_cli.outcomes import await_outcome
from headway_cli.summary import counted


def _give_back_option(*settings: str) -> Callable[..., Any]:
    return click.option(
        "--give-back",
        "give_back",
        type=click.Choice(settings),
        multiple=True,
        help="Let the code decide about it again; may be repeated.",
    )


@click.command()
@click.argument(
    "manifest_ids", metavar="ID...", nargs=-1, required=True, shell_complete=complete_manifests
)
@json_option
@asking
def enable(reached: Reached, manifest_ids: tuple[str, ...], as_json: bool) -> None:
    """Let manifests fire."""
    _each(reached, manifest_ids, Client.enable, as_json=as_json)


@click.command()
@click.argument(
    "manifest_ids", metavar="ID...", nargs=-1, required=True, shell_complete=complete_manifests
)
@json_option
@asking
def disable(reached: Reached, manifest_ids: tuple[str, ...], as_json: bool) -> None:
    """Keep manifests from firing."""
    _each(reached, manifest_ids, Client.disable, as_json=as_json)


@click.command()
@click.argument(
    "manifest_ids", metavar="ID...", nargs=-1, required=True, shell_complete=complete_manifests
)
@yes_option
@json_option
@asking
def delete(reached: Reached, manifest_ids: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Delete manifests that no code declares.

    They were made at run time, or their application has dropped them and they were kept. Their
    work, dead letters and runs go with them.
    """
    confirm(lambda: _deleted(reached, manifest_ids), yes=yes)
    _each(reached, manifest_ids, Client.delete, as_json=as_json)


def _deleted(reached: Reached, manifest_ids: tuple[str, ...]) -> str | None:
    """What a deletion would take away; none if it will be refused anyhow."""

    async def ask(client: Client) -> list[ManifestStatus]:
        return [(await client.manifest(one)).status for one in manifest_ids]

    found = [one for one in reached.ask(ask) if one.owner == API_OWNER or not one.declared]
    if not found:
        return None
    under_way = sum(one.outstanding for one in found)
    names = listed([one.external_id for one in found])
    what = counted(len(found), "manifest")
    return f"delete {what} ({names}) with all runs and dead letters, {under_way} of work under way"


@click.command()
@click.argument("manifest_id", metavar="ID", shell_complete=complete_manifests)
@click.option("--attempts", type=click.IntRange(1), help="How often its work may run.")
@options.seconds_option(
    "--interval", "interval", "How long work waits for its second run.", type=click.FloatRange(0)
)
@options.seconds_option(
    "--jitter", "jitter", "How late it may fire, by chance.", type=click.FloatRange(0, 86_400)
)
@_give_back_option("enabled", "retry", "jitter")
@json_option
@asking
def change(
    reached: Reached,
    manifest_id: str,
    give_back: tuple[Any, ...],
    as_json: bool,
    **given: float | None,
) -> None:
    """Change what operators own of a manifest."""
    stated: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if not stated and not give_back:
        raise click.UsageError(
            "nothing to change: give --attempts, --interval, --jitter or --give-back"
        )

    async def ask(client: Client) -> Changed:
        return await client.change(manifest_id, give_back=give_back, **stated)

    _tell(reached.ask(ask), as_json=as_json)


def _limit(
    context: click.Context, parameter: click.Parameter, given: str | None
) -> int | Literal["none"] | None:
    if given is None:
        return None
    if given.lower() == "none":
        return "none"
    if given.isdecimal():
        return int(given)
    raise click.BadParameter(f"{given!r} is neither a number nor none.", context, parameter)


def _rate(
    context: click.Context, parameter: click.Parameter, given: str | None
) -> Rate | Literal["none"] | None:
    if given is None:
        return None
    if given.lower() == "none":
        return "none"
    try:
        return parse_rate(given)
    except ValueError as error:
        raise click.BadParameter(f"{error}.", context, parameter) from error


_max_active_option = click.option(
    "--max-active",
    metavar="N|none",
    callback=_limit,
    help="How many runs at once; none lifts the limit.",
)
_rate_option = click.option(
    "--rate",
    metavar="N/UNIT|none",
    callback=_rate,
    help="How many runs may begin, such as 100/minute; none lifts the limit.",
)


def _lifted(**limits: Any) -> dict[str, Any]:
    """The limits that were given; one that is to be lifted is none."""
    return {
        name: None if value == "none" else value
        for name, value in limits.items()
        if value is not None
    }


@click.command()
@click.argument("name", metavar="NAME", shell_complete=complete_groups)
@_max_active_option
@_rate_option
@click.option("--priority", type=click.IntRange(0, 31), help="Its turn among groups, from 0 to 31.")
@click.option("--enable/--disable", "enabled", default=None, help="Whether its manifests may run.")
@_give_back_option("max-active", "rate", "priority", "enabled")
@json_option
@asking
def group(
    reached: Reached,
    name: str,
    max_active: int | Literal["none"] | None,
    rate: Rate | Literal["none"] | None,
    give_back: tuple[str, ...],
    as_json: bool,
    **given: Any,
) -> None:
    """Change the limits of a group."""
    stated = {key: value for key, value in given.items() if value is not None}
    stated |= _lifted(max_active=max_active, rate=rate)
    if not stated and not give_back:
        raise click.UsageError(
            "nothing to change: give --max-active, --rate, --priority, --enable, --disable or "
            "--give-back"
        )
    _limit_it(reached, Client.change_group, name, stated, give_back, as_json=as_json)


@click.command()
@click.argument("name", metavar="NAME", shell_complete=complete_jobs)
@_max_active_option
@_rate_option
@_give_back_option("max-active", "rate")
@json_option
@asking
def job(
    reached: Reached,
    name: str,
    max_active: int | Literal["none"] | None,
    rate: Rate | Literal["none"] | None,
    give_back: tuple[str, ...],
    as_json: bool,
) -> None:
    """Change the limits of a job, over all groups."""
    stated = _lifted(max_active=max_active, rate=rate)
    if not stated and not give_back:
        raise click.UsageError("nothing to change: give --max-active, --rate or --give-back")
    _limit_it(reached, Client.change_job, name, stated, give_back, as_json=as_json)


@click.command()
@click.argument("manifest_id", metavar="ID", shell_complete=complete_manifests)
@click.option("--input", "given", metavar="JSON", help="An input in place of the manifest's own.")
@options.seconds_option(
    "--delay",
    "delay",
    "Not before so much time has passed.",
    type=click.FloatRange(min=0),
    default=0.0,
)
@click.option(
    "--priority", type=click.IntRange(0, 31), help="In place of the manifest's own, from 0 to 31."
)
@options.seconds_option(
    "--start-within",
    "start_within",
    "It expires if it has not begun by then.",
    type=click.FloatRange(min=0, min_open=True),
)
@click.option("--key", help="The same key triggers only once; with other parameters it is refused.")
@outcomes.wait_option
@json_option
@asking
def trigger(
    reached: Reached,
    manifest_id: str,
    given: str | None,
    delay: float,
    priority: int | None,
    start_within: float | None,
    key: str | None,
    waits: bool,
    as_json: bool,
) -> int:
    """Run a manifest now, beside its schedule.

    With --wait it says how that ended; with --json, too, it prints the work in full.
    """
    value = UNSET if given is None else options.read_json(given)

    async def ask(client: Client) -> TriggerAnswer:
        return await client.trigger(
            manifest_id,
            input=value,
            delay=delay,
            priority=priority,
            start_within=start_within,
            key=key,
        )

    found = reached.ask(ask)
    if not as_json:
        click.echo(found.text)
    elif not waits or found.work is None:
        print_json(found)
    return await_outcome(reached, found.work, as_json=as_json) if waits else 0


def _limit_it(
    reached: Reached,
    act: Callable[..., Awaitable[Changed]],
    name: str,
    stated: dict[str, Any],
    give_back: tuple[str, ...],
    *,
    as_json: bool,
) -> None:
    """Change the limits of a group or a job, and say what was changed."""
    returned = [one.replace("-", "_") for one in give_back]

    async def ask(client: Client) -> Changed:
        return await act(client, name, give_back=returned, **stated)

    _tell(reached.ask(ask), as_json=as_json)


def _tell(done: Changed, *, as_json: bool) -> None:
    if as_json:
        print_json(done)
    else:
        click.echo(done.text)


def _each(reached: Reached, manifest_ids: tuple[str, ...], act: Any, *, as_json: bool) -> None:
    """Do one after the other; what is refused for one is told at the end, and ends nothing."""
    done: list[Changed] = []
    refused: list[str] = []

    async def ask(client: Client) -> None:
        for manifest_id in manifest_ids:
            try:
                done.append(await act(client, manifest_id))
            except Refused as error:
                refused.append(str(error))
                continue
            if not as_json:
                click.echo(done[-1].text)

    reached.ask(ask)
    if as_json and done:
        print_json(done)
    if refused:
        raise Refused("\n".join(refused))
