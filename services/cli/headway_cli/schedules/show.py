"""Commands that look and change nothing: manifests, groups, previews, explanations."""

from datetime import datetime
from typing import Any
from uuid import UUID

import click
from headway import Client
from headway_clock import utc_now
from headway_contract.dispatching import GroupOccupancy
from headway_contract.scheduling import (
    FieldOwner,
    FireTime,
    ManifestAnswer,
    ManifestStatus,
    PreviewAnswer,
)
from headway_contract.waiting import ExplainWorkAnswer, GateStatus
from headway_contract.work import WorkTerms
from headway_decisions.capacity.rates import rate_in_words
from headway_errors import NotFound

from headway_cli.terminal.completion import complete_manifests
from headway_cli.terminal.connect import Reached, asking, json_option, print_json, print_lines
from headway_cli.terminal.tables import print_table
from headway_cli.terminal.times import CLOCK_CHANGES, has_offset, read_moment, shown

_TIME_HELP = "ISO 8601, '2027-03-28 03:15' or 03:15; without an offset in the manifest's zone."


@click.command()
@json_option
@asking
def manifests(reached: Reached, as_json: bool) -> None:
    """List all manifests and how they stand."""

    async def ask(client: Client) -> list[ManifestStatus]:
        return await client.manifests()

    found = reached.ask(ask)
    if as_json:
        print_json(found)
    elif not found:
        click.echo("no manifests are declared")
    else:
        headings = ("MANIFEST", "JOB", "GROUP", "NEXT FIRE", "STANDS", "LAST", "CADENCE")
        print_table(headings, [_row(one) for one in found])


@click.command()
@click.argument("manifest_id", metavar="ID", shell_complete=complete_manifests)
@json_option
@asking
def manifest(reached: Reached, manifest_id: str, as_json: bool) -> None:
    """Show one manifest with its definition."""

    async def ask(client: Client) -> ManifestAnswer:
        return await client.manifest(manifest_id)

    found = reached.ask(ask)
    if as_json:
        print_json(found)
    else:
        print_lines(_manifest_lines(found))


@click.command()
@click.option("--occupancy", is_flag=True, help="What each has under way, and what waits and why.")
@json_option
@asking
def groups(reached: Reached, occupancy: bool, as_json: bool) -> None:
    """List all groups with their limits."""
    if occupancy:
        _show_occupancy(reached.ask(lambda client: client.occupancy()), as_json=as_json)
        return
    found = reached.ask(lambda client: client.groups())
    if as_json:
        print_json(found)
    elif not found:
        click.echo("there are no groups")
    else:
        headings = ("GROUP", "MAX ACTIVE", "RATE", "PRIORITY", "ENABLED", "MANIFESTS", "OPERATOR'S")
        rows = [
            (
                one.name,
                "no limit" if one.max_active is None else one.max_active,
                "no limit" if one.rate is None else rate_in_words(one.rate),
                one.priority,
                one.enabled,
                one.manifests,
                ", ".join(one.touched),
            )
            for one in found
        ]
        print_table(headings, rows)


def _show_occupancy(found: list[GroupOccupancy], *, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    if not found:
        click.echo("no work has come yet")
        return
    headings = ("GROUP", "RUNNING", "ORDERED", "MAX ACTIVE", "WAITING", "WHY", "DEAD LETTERS")
    rows = [
        (
            one.group,
            one.in_progress,
            one.pending,
            "no limit" if one.max_active is None else str(one.max_active),
            sum(one.waiting.values()),
            ", ".join(f"{number} {why.replace('_', ' ')}" for why, number in one.waiting.items()),
            one.dead_letters,
        )
        for one in found
    ]
    print_table(headings, rows)


@click.command()
@click.argument("manifest_id", metavar="ID", shell_complete=complete_manifests)
@click.option(
    "-n",
    "count",
    type=click.IntRange(1, 1000),
    default=20,
    show_default=True,
    help="How many times that fire; excluded ones between them are folded into a line.",
)
@click.option("--after", metavar="TIME", help=f"From then on, instead of from now. {_TIME_HELP}")
@json_option
@asking
def preview(
    reached: Reached, manifest_id: str, count: int, after: str | None, as_json: bool
) -> None:
    """Show the next fire times of a manifest."""

    async def ask(client: Client) -> PreviewAnswer:
        instant = await moment_of(client, manifest_id, after, past=False)
        return await client.preview(manifest_id, count, after=instant)

    found = reached.ask(ask)
    if as_json:
        print_json(found)
        return
    if found.fires:
        headings = ("DUE", "FIRES", "NOTE")
        print_table(headings, [fire_row(one, found.zone) for one in found.fires])
        click.echo(f"times are {found.zone}")
    if found.note:
        click.echo(f"note: {found.note}")


@click.command()
@click.argument(
    "named", metavar="ID | work ID", nargs=-1, required=True, shell_complete=complete_manifests
)
@click.option("--at", metavar="TIME", help=f"Which time to explain. {_TIME_HELP}")
@json_option
@asking
def explain(reached: Reached, named: tuple[str, ...], at: str | None, as_json: bool) -> None:
    """Tell why a manifest ran, or did not, or why work waits.

    Without --at it tells how the manifest stands. A time of day is the latest that has been. With
    'work' before it, the id is that of a piece of work: its gates, and who holds the slots.
    """
    match named:
        case ("work", work):
            _explain_work(reached, work, at, as_json=as_json)
        case (manifest_id,):
            _explain_manifest(reached, manifest_id, at, as_json=as_json)
        case _:
            raise click.UsageError("name one manifest, or 'work' and the id of one piece of work")


def _explain_work(reached: Reached, work: str, at: str | None, *, as_json: bool) -> None:
    if at is not None:
        raise click.UsageError("--at is for manifests: work is explained as it stands now")
    found = reached.ask(lambda client: _explained(client, work))
    if as_json:
        print_json(found)
        return
    click.echo(found.text)
    if found.gates:
        rows = [
            (gate.gate, "open" if gate.open else "closed", _moment_of(gate), gate.text)
            for gate in found.gates
        ]
        print_table(("GATE", "NOW", "OPENS", "WHY"), rows)


async def _explained(client: Client, named: str) -> ExplainWorkAnswer:
    """Why work waits, by its id or by that of a run, which is what people have at hand."""
    try:
        return await client.explain_work(named)
    except NotFound as error:
        try:
            found = await client.work(UUID(named))
        except (NotFound, ValueError):
            raise error from None
        return await client.explain_work(found.status.work)


def _moment_of(gate: GateStatus) -> str:
    return "-" if gate.open or gate.opens_at is None else shown(gate.opens_at, "UTC")


def _explain_manifest(reached: Reached, manifest_id: str, at: str | None, *, as_json: bool) -> None:
    async def ask(client: Client) -> object:
        instant = await moment_of(client, manifest_id, at, past=True)
        answer = await client.explain(manifest_id, at=instant)
        return answer if as_json else answer.text

    found = reached.ask(ask)
    if as_json:
        print_json(found)
    else:
        click.echo(found)


async def moment_of(
    client: Client, manifest_id: str | None, given: str | None, *, past: bool
) -> datetime | None:
    """A time that was given; the manifest's zone is asked for only if it matters."""
    if given is None:
        return None
    zone = "UTC"
    if manifest_id is not None and not has_offset(given):
        zone = (await client.manifest(manifest_id)).status.zone
    return read_moment(given, zone, now=utc_now(), past=past)


def _row(one: ManifestStatus) -> tuple[object, ...]:
    return (
        one.external_id,
        one.job,
        one.group,
        shown(one.next_fire_at, one.zone),
        _stands(one),
        one.last_outcome,
        _cadence(one),
    )


def _stands(one: ManifestStatus) -> str:
    if one.held_by is not None:
        return one.held_by.replace("_", " ")
    if one.outstanding:
        return f"{one.outstanding} under way"
    return f"{one.owed} owed" if one.owed else "ready"


def _cadence(one: ManifestStatus) -> str:
    if one.depends_on is None:
        return one.cadence
    return f"{'when woken by' if one.dormant else 'after'} {one.depends_on}"


def _manifest_lines(found: ManifestAnswer) -> list[str]:
    status, definition = found.status, found.definition
    told = {
        "manifest": status.external_id,
        "owner": status.owner,
        "job": status.job,
        "group": status.group,
        "cadence": _cadence(status),
        "stands": _stands(status),
        "next fire": shown(status.next_fire_at, status.zone),
        "last outcome": status.last_outcome or "-",
        "last settled": shown(status.last_settled_at, status.zone),
        "successes": status.success_number,
    }
    for name in (
        *("input", "jitter_seconds", "misfire", "overlap", "batch"),
        *WorkTerms.__struct_fields__,
    ):
        told[name.replace("_seconds", " (seconds)").replace("_", " ")] = _plain(definition[name])
    told["retry"] = _retry(definition["retry"])
    told |= {f"{owner.field} (owner)": _owner(owner) for owner in found.owners}
    width = max(map(len, told))
    return [f"{name.ljust(width)}  {value}" for name, value in told.items()]


def _owner(owner: FieldOwner) -> str:
    """Who decides about a field, and how an operator gives it back."""
    match owner.owner:
        case "operator":
            return f"{owner.value}: the operator's; give it back with '{owner.give_back}'"
        case "code":
            return f"{owner.value}: the code's ({owner.application})"
        case "api":
            return f"{owner.value}: made at run time"
    return f"{owner.value}: the default"


def _retry(given: dict[str, Any]) -> str:
    """When work is tried again, in words."""
    if given.get("attempts") == 1:
        return "1 attempt"
    told = f"{given.get('attempts')} attempts, {given.get('interval_seconds'):g} s apart at first"
    longest = max(given["interval_seconds"], given["max_interval_seconds"])
    told += f", then x{given.get('backoff'):g} up to {longest:g} s"
    for name in ("retry_on", "abort_on"):
        if given.get(name):
            told += f", {name.replace('_', ' ')} {', '.join(given[name])}"
    return told


def _plain(value: object) -> str:
    if isinstance(value, dict):
        words = [f"{key.replace('_', ' ')} {one}" for key, one in value.items()]
        return ", ".join(words) or "default"
    return "-" if value is None else str(value)


def _folded(one: FireTime, zone: str) -> str:
    """How many excluded times a line stands for, if it is more than one."""
    if one.until is None:
        return ""
    return f"{f'{one.times:,}' if one.times else 'all'} times until {shown(one.until, zone)}, "


def fire_row(one: FireTime, zone: str) -> tuple[object, ...]:
    """A fire time as a line of a table, or a run of excluded ones."""
    fires = "not at all" if one.excluded else shown(one.fire_at, zone)
    notes = [f"{_folded(one, zone)}excluded: {one.excluded}"] if one.excluded else []
    notes += [CLOCK_CHANGES.get(one.dst, one.dst)] if one.dst else []
    return one.local, fires, "; ".join(notes) or " "
