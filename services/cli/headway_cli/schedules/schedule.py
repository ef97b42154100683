"""`headway schedule`: create, change and delete manifests at run time, which no code declares."""

import re
from typing import Any

import click
import msgspec
from headway import Client
from headway.define.definitions import API_OWNER, Definitions, ManifestDefinition
from headway.yaml_file import change_manifest, load_manifest, nodes
from headway_contract.definitions import ApplyAnswer
from headway_contract.manifests import ManifestStatus
from headway_errors import Conflict, NotFound

from headway_cli.schedules.change import delete
from headway_cli.serve import names, settings
from headway_cli.serve.session import Session, command
from headway_cli.terminal import options
from headway_cli.terminal.times import shown

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours"}


def _read_step(context: click.Context, parameter: click.Parameter, text: str | None) -> Any:
    match = re.fullmatch(r"([0-9]+)([smh])", text or "")
    if text is not None and match is None:
        raise click.BadParameter(f"invalid step {text!r}: write 30s, 5m or 2h", context, parameter)
    return match and {_UNITS[match[2]]: int(match[1])}


def _read_values(
    context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> dict[str, Any]:
    values = {}
    for key, text in options.read_pairs(context, parameter, texts).items():
        try:
            values[key] = nodes.plain(nodes.parse(text))
        except nodes.Unreadable as error:
            raise click.BadParameter(f"{key}: {error.reason}", context, parameter) from error
    return values


_manifest_options = options.together(
    options.text("--job", "NAME", "Job to run."),
    options.text("--cron", "EXPR", "Cadence: a cron expression, or @daily."),
    options.text("--daily", "HH:MM", "Cadence: once a day."),
    click.option("--every", metavar="STEP", callback=_read_step, help="Cadence: 30s, 5m, 2h."),
    click.option("--once", metavar="TIME", help="Cadence: once, at '2027-06-01 09:00'."),
    click.option("--manual", is_flag=True, default=None, help="Runs only when triggered."),
    options.text("--depends-on", "ID", "After each of its successes."),
    click.option("--dormant/--not-dormant", default=None, help="Only if its parent activates it."),
    click.option("--tz", metavar="ZONE", help="Time zone of its times."),
    click.option("--input", "input_text", metavar="JSON", help="Input of its work."),
    options.text("--group", "NAME", "Its group."),
    options.priority_option,
    options.seconds_option("--timeout", "timeout", "Time limit of a run.", type=float),
    click.option("--enabled/--disabled", default=None, help="Whether it fires."),
    options.pairs("--label", "labels", "KEY=VALUE", "A label; may be repeated."),
    options.repeated(
        *("--set", "others", "KEY=YAML"),
        "Any other field of a manifest in YAML, such as overlap=queue_one "
        "or 'weekly={days: mon, at: \"09:00\"}'; may be repeated.",
        callback=_read_values,
    ),
)


@click.group()
def schedule() -> None:
    """Create, change or delete manifests at run time.

    They belong to no application's code. Terms that you do not give are those of the job.
    """


@command(of=schedule)
@click.argument("manifest_id", metavar="ID")
@_manifest_options
def add(session: Session, manifest_id: str, **stated: Any) -> None:
    """Create a manifest of a job that some application declares.

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
        raise Conflict(f"there is already a manifest {manifest_id!r}{whose}: {remedy}")

    _print(session, *session.ask(ask))


@command(of=schedule)
@names.manifest_argument
@_manifest_options
def change(session: Session, manifest_id: str, **stated: Any) -> None:
    """Change a manifest that was created at run time; other fields stay as they are.

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

    _print(session, *session.ask(ask))


schedule.add_command(delete)


def _record(stated: dict[str, Any]) -> dict[str, Any]:
    """Collect what was given as a YAML record; --set overrides other options."""
    others, input_text = stated.pop("others"), stated.pop("input_text")
    record = {
        name: value for name, value in stated.items() if value is not None and value != {}
    } | others
    return record if input_text is None else {**record, "input": options.read_json(input_text)}


async def _apply(client: Client, definitions: Definitions) -> tuple[ApplyAnswer, ManifestStatus]:
    answer = await client.apply(definitions)
    [manifest] = definitions.manifests
    return answer, (await client.manifest(manifest.external_id)).status


def _print(session: Session, answer: ApplyAnswer, status: ManifestStatus) -> None:
    changed = "changed" if answer.changed or answer.moved else "nothing to change"
    done = "created" if answer.created else changed
    cadence, fires = status.cadence, ""
    if status.depends_on is not None:
        cause = "activations by" if status.dormant else "each success of"
        cadence = f"after {cause} {status.depends_on!r}"
    if status.next_fire_at is not None:
        fires = f"; next fire at {shown(status.next_fire_at, status.zone)} ({status.zone})"
    session.print(answer, lambda: [f"{status.external_id}: {done}; {cadence}{fires}"])
    for warning in () if session.as_json else answer.warnings:
        click.echo(f"headway: {warning}", err=True)
