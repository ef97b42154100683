"""Commands by which operators change manifests and groups, or run them."""

from collections.abc import Awaitable, Callable
from typing import Any, Literal

import click
from headway import Client
from headway.define.definitions import API_OWNER
from headway_contract.operating import ManifestChanged
from headway_contract.scheduling import Changed, ManifestStatus, TriggerAnswer
from headway_contract.work import Rate
from headway_decisions.capacity.rates import parse_rate
from headway_errors import Conflict, Rejected
from msgspec import UNSET

from headway_cli.schedules.backfill import backfill_range
from headway_cli.schedules.selection import check_choice, choosing
from headway_cli.terminal import options
from headway_cli.terminal.completion import complete_groups, complete_jobs, complete_manifests
from headway_cli.terminal.confirm import confirm, listed, yes_option
from headway_cli.terminal.connect import Reached, asking, json_option, print_json
from headway_cli.up.summary import counted
from headway_cli.work import outcomes
from headway_cli.work.outcomes import await_outcome

# How many results are printed one by one.
_LISTED = 20


def _give_back_option(*settings: str) -> Callable[..., Any]:
    return click.option(
        "--give-back",
        "give_back",
        type=click.Choice(settings),
        multiple=True,
        help="Let the code decide about it again; may be repeated.",
    )


@click.command()
@choosing
@yes_option
@json_option
@asking
def enable(
    reached: Reached, manifest_ids: tuple[str, ...], yes: bool, as_json: bool, **chosen: Any
) -> None:
    """Let manifests fire.

    For those of a group, with labels or all it says how many they are, and asks first.
    """
    check_choice(manifest_ids, **chosen)
    if manifest_ids:
        _each(reached, manifest_ids, Client.enable, as_json=as_json)
    else:
        _change_many(reached, "enable", chosen, yes=yes, as_json=as_json)


@click.command()
@choosing
@yes_option
@json_option
@asking
def disable(
    reached: Reached, manifest_ids: tuple[str, ...], yes: bool, as_json: bool, **chosen: Any
) -> None:
    """Keep manifests from firing.

    For those of a group, with labels or all it says how many they are, and asks first.
    """
    check_choice(manifest_ids, **chosen)
    if manifest_ids:
        _each(reached, manifest_ids, Client.disable, as_json=as_json)
    else:
        _change_many(reached, "disable", chosen, yes=yes, as_json=as_json)


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
@_give_back_option("enabled", "attempts", "interval", "jitter", "retry")
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
@choosing
@click.option("--input", "given", metavar="JSON", help="An input in place of the manifest's own.")
@options.seconds_option(
    "--delay",
    "delay",
    "Not before so much time has passed.",
    type=click.FloatRange(min=0),
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
@click.option(
    "--from", "since", metavar="TIME", help="Backfill: queue the occurrences of a past range."
)
@click.option("--to", "until", metavar="TIME", help="The end of that range; without it, now.")
@click.option("--missed-only", is_flag=True, help="Leave out occurrences that fired on schedule.")
@outcomes.wait_option
@yes_option
@json_option
@asking
def trigger(
    reached: Reached,
    manifest_ids: tuple[str, ...],
    group: str | None,
    labels: dict[str, str],
    everything: bool,
    given: str | None,
    delay: float | None,
    priority: int | None,
    start_within: float | None,
    key: str | None,
    since: str | None,
    until: str | None,
    missed_only: bool,
    waits: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Run manifests now, beside their schedules.

    With --from it queues the occurrences of a past range, each once: it says how many they are,
    and asks first. Times without an offset are in the manifest's zone.

    With --wait it says how the run of one manifest ended; with --json, too, it prints the work in
    full. For several manifests it says how many they are, and asks first.
    """
    chosen: dict[str, Any] = {"group": group, "labels": labels, "everything": everything}
    check_choice(manifest_ids, **chosen)
    if len(manifest_ids) != 1:
        _refuse_terms(
            "only for a single manifest",
            input=given,
            delay=delay,
            priority=priority,
            start_within=start_within,
            **{"wait": waits, "from": since, "to": until, "missed_only": missed_only},
        )
        _change_many(reached, "run", chosen, manifest_ids, key=key, yes=yes, as_json=as_json)
        return 0
    [manifest_id] = manifest_ids
    if since is not None:
        _refuse_terms(
            _WITH_RANGE, input=given, delay=delay, start_within=start_within, key=key, wait=waits
        )
        ends = (since, until)
        terms = {"missed_only": missed_only, "priority": priority}
        backfill_range(reached, manifest_id, ends, terms, yes=yes, as_json=as_json)
        return 0
    if until is not None or missed_only:
        raise click.UsageError("--to and --missed-only go with --from, where the range begins")
    value = UNSET if given is None else options.read_json(given)

    async def ask(client: Client) -> TriggerAnswer:
        return await client.trigger(
            manifest_id,
            input=value,
            delay=delay or 0.0,
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


_WITH_RANGE = "a backfill takes none of these, but --priority"


def _refuse_terms(why: str, **given: object) -> None:
    """Refuse terms that mean nothing for several manifests, or for a range."""
    stated = [f"--{name.replace('_', '-')}" for name, value in given.items() if value]
    if stated:
        raise click.UsageError(f"{', '.join(stated)}: {why}")


def _change_many(
    reached: Reached,
    action: Literal["enable", "disable", "run"],
    chosen: dict[str, Any],
    manifest_ids: tuple[str, ...] = (),
    *,
    yes: bool,
    as_json: bool,
    key: str | None = None,
) -> None:
    """Ask with the number of manifests that are meant, then change them."""

    def changed(*, dry_run: bool) -> list[ManifestChanged]:
        async def ask(client: Client) -> list[ManifestChanged]:
            return await client.change_many(
                *manifest_ids, action=action, dry_run=dry_run, key=key, **chosen
            )

        return reached.ask(ask)

    def what() -> str:
        names = [result.manifest for result in changed(dry_run=True)]
        return f"{action} {counted(len(names), 'manifest')} ({listed(names)})"

    confirm(what, yes=yes)
    results = changed(dry_run=False)
    done = [result for result in results if result.done]
    refused = [result.text for result in results if not result.done]
    if as_json:
        print_json(results)
    else:
        for result in done[:_LISTED]:
            click.echo(result.text)
        if len(done) > _LISTED:
            click.echo(f"and {len(done) - _LISTED} more")
    if refused:
        more = [f"and {len(refused) - _LISTED} more"] if len(refused) > _LISTED else []
        raise Conflict("\n".join([*refused[:_LISTED], *more]))


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
            except Rejected as error:
                refused.append(str(error))
                continue
            if not as_json:
                click.echo(done[-1].text)

    reached.ask(ask)
    if as_json and done:
        print_json(done)
    if refused:
        raise Conflict("\n".join(refused))
