"""Commands that make, change and delete manifests at run time, which belong to no code."""

import re
from collections.abc import Callable
from typing import Any

import click
import msgspec
from headway import Client
from headway.define.definitions import API_OWNER, Definitions, ManifestDefinition
from headway.yaml_file import change_manifest, load_manifest, nodes
from headway_contract.scheduling import ApplyAnswer, ManifestStatus
from headway_errors import Conflict, NotFound

from headway_cli.schedules.change import delete
from headway_cli.serve import settings
from headway_cli.terminal import options, times
from headway_cli.terminal.completion import complete_groups, complete_jobs, complete_manifests
from headway_cli.terminal.connect import Reached, asking, json_option, print_json

_STEP = re.compile(r"([0-9]+)([smh])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours"}


def _step(
    context: click.Context, parameter: click.Parameter, given: str | None
) -> dict[str, int] | None:
    if given is None:
        return None
    found = _STEP.fullmatch(given)
    if found is None:
        raise click.BadParameter(f"{given!r} is no step: write 30s, 5m or 2h", context, parameter)
    return {_UNITS[found[2]]: int(found[1])}


def _pairs(
    context: click.Context, parameter: click.Parameter, given: tuple[str, ...]
) -> dict[str, str]:
    pairs = [text.partition("=") for text in given]
    for key, sign, _ in pairs:
        if not key or not sign:
            raise click.BadParameter(f"{key!r} is no pair: write KEY=VALUE", context, parameter)
    return {key: value for key, _, value in pairs}


def _values(
    context: click.Context, parameter: click.Parameter, given: tuple[str, ...]
) -> dict[str, Any]:
    values = {}
    for key, text in _pairs(context, parameter, given).items():
        wrong: list[str] = []
        try:
            values[key] = nodes.plain(nodes.parse(text, lambda _, problem: wrong.append(problem)))  # noqa: B023
        except nodes.Unreadable as error:
            wrong.append(error.reason)
        if wrong:
            raise click.BadParameter(f"{key}: {wrong[0]}", context, parameter)
    return values


_STATED: tuple[Callable[[Any], Any], ...] = (
    click.option("--job", "job", metavar="NAME", shell_complete=complete_jobs, help="What runs."),
    click.option("--cron", metavar="EXPR", help="When: a cron expression, or @daily."),
    click.option("--daily", metavar="HH:MM", help="When: once a day."),
    click.option("--every", metavar="STEP", callback=_step, help="When: 30s, 5m or 2h."),
    click.option("--once", metavar="TIME", help="When: once, at '2027-06-01 09:00'."),
    click.option("--manual", is_flag=True, default=None, help="Only when asked for."),
    click.option(
        "--depends-on", metavar="ID", shell_complete=complete_manifests,
        help="After each success of another manifest.",
    ),
    click.option(
        "--dormant/--not-dormant", default=None,
        help="With a parent: only when a run of that says so.",
    ),
    click.option("--tz", metavar="ZONE", help="The zone of its times."),
    click.option("--input", "given", metavar="JSON", help="The input of its work."),
    click.option("--group", metavar="NAME", shell_complete=complete_groups, help="Its group."),
    click.option("--priority", type=click.IntRange(0, 31), help="From 0 to 31."),
    options.seconds_option("--timeout", "timeout", "How long a run may take.", type=float),
    click.option("--enabled/--disabled", default=None, help="Whether it fires."),
    click.option(
        "--label", "labels", metavar="KEY=VALUE", multiple=True, callback=_pairs,
        help="A label; may be repeated.",
    ),
    click.option(
        "--set", "others", metavar="KEY=YAML", multiple=True, callback=_values,
        help="Anything else that a YAML file may state of a manifest, such as overlap=queue_one "
        "or 'weekly={days: mon, at: \"09:00\"}'; may be repeated.",
    ),
)  # fmt: skip


def _stating(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that state a manifest; the command gets them as `record`."""
    for option in reversed(_STATED):
        command = option(command)
    return command


@click.group()
def schedule() -> None:
    """Make, change or delete manifests at run time.

    They belong to no application's code. Terms that you do not state are those of the job.
    """


@schedule.command()
@click.argument("manifest_id", metavar="ID")
@_stating
@json_option
@asking
def add(reached: Reached, manifest_id: str, as_json: bool, **stated: Any) -> None:
    """Make a manifest of a job that some application declares.

    headway schedule add sync-ada --job sync --daily 03:15 --tz Europe/Berlin --input '{"id": 7}'
    """
    record = _record(stated)
    if "job" not in record:
        raise click.UsageError("nothing to run: give --job")
    definitions = load_manifest(manifest_id, record, settings.read_defaults())

    async def ask(client: Client) -> tuple[ApplyAnswer, ManifestStatus]:
        try:
            known = (await client.manifest(manifest_id)).status
        except NotFound:
            return await _apply(client, definitions)
        whose = "" if known.owner == API_OWNER else f" of the application {known.owner!r}"
        remedy = f"use 'headway schedule change {manifest_id}'" if not whose else "use another id"
        raise Conflict(f"there is a manifest {manifest_id!r}{whose} already: {remedy}")

    _tell(*reached.ask(ask), as_json=as_json)


@schedule.command()
@click.argument("manifest_id", metavar="ID", shell_complete=complete_manifests)
@_stating
@json_option
@asking
def change(reached: Reached, manifest_id: str, as_json: bool, **stated: Any) -> None:
    """Change a manifest that was made at run time; what you do not state stays as it is.

    A new cadence replaces the old one with its filters and exclusions, and keeps the zone.
    """
    record = _record(stated)
    if not record:
        raise click.UsageError("nothing to change: give a cadence, --input, --set or another term")

    async def ask(client: Client) -> tuple[ApplyAnswer, ManifestStatus]:
        found = await client.manifest(manifest_id)
        if found.status.owner != API_OWNER:
            raise Conflict(
                f"manifest {manifest_id!r} is declared by the application "
                f"{found.status.owner!r}: change it in its code"
            )
        stored = msgspec.convert(found.sent or found.definition, ManifestDefinition)
        return await _apply(client, change_manifest(stored, record, settings.read_defaults()))

    _tell(*reached.ask(ask), as_json=as_json)


schedule.add_command(delete)


def _record(stated: dict[str, Any]) -> dict[str, Any]:
    """What was stated, in the words of a YAML file; what stands in --set goes last."""
    others, given = stated.pop("others"), stated.pop("given")
    record = {
        name: value for name, value in stated.items() if value is not None and value != {}
    } | others
    return record if given is None else {**record, "input": options.read_json(given)}


async def _apply(client: Client, definitions: Definitions) -> tuple[ApplyAnswer, ManifestStatus]:
    answer = await client.apply(definitions)
    [manifest] = definitions.manifests
    return answer, (await client.manifest(manifest.external_id)).status


def _tell(answer: ApplyAnswer, status: ManifestStatus, *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    done = "made" if answer.created else "changed" if answer.changed else "nothing to change"
    when = status.cadence
    if status.depends_on is not None:
        when = f"after {'runs that say so' if status.dormant else 'each success'} of "
        when += repr(status.depends_on)
    fires = ""
    if status.next_fire_at is not None:
        fires = f"; fires next at {times.shown(status.next_fire_at, status.zone)} ({status.zone})"
    click.echo(f"{status.external_id}: {done}; {when}{fires}")
    for warning in answer.warnings:
        click.echo(f"headway: {warning}", err=True)
