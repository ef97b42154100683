"""`headway audit`: who changed what, when, from what to what."""

from datetime import datetime
from typing import Any

import click
import msgspec
from headway_contract.routes import API
from msgspec import Struct

from headway_cli.terminal import options
from headway_cli.terminal.connect import Reached, asking, json_option, print_json
from headway_cli.terminal.tables import print_table
from headway_cli.terminal.times import shown

_HEADINGS = ("AT", "WHO", "ACTION", "TARGET", "CHANGE")


class AuditEntry(Struct, frozen=True, kw_only=True):
    """An entry of the audit in the API, as far as it is shown here."""

    at: datetime
    actor: str
    by: str
    action: str
    target: str
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}


@click.command()
@click.option("--actor", help="Only what this person did.")
@click.option("--target", help="Only what was done to this manifest, group, work or dead letter.")
@click.option(
    "--action",
    "actions",
    metavar="ACTION",
    multiple=True,
    help="Only these, as in manifest.paused or 'manifest.*'; may be repeated.",
)
@click.option("--people", is_flag=True, help="Leave out what applications declared.")
@options.since_option
@options.until_option
@options.most_option
@json_option
@asking
def audit(
    reached: Reached,
    actor: str | None,
    target: str | None,
    actions: tuple[str, ...],
    people: bool,
    since: datetime | None,
    until: datetime | None,
    most: int,
    as_json: bool,
) -> None:
    """Show who changed what, the newest first."""
    stated = {
        "actor": actor,
        "target": target,
        "people": "true" if people else None,
        "since": None if since is None else since.isoformat(),
        "before": None if until is None else until.isoformat(),
    }
    query = [(name, value) for name, value in stated.items() if value is not None]
    query += [("action", action) for action in actions]
    found = reached.listed(f"{API}/audit", query, most=most + 1)
    if as_json:
        print_json(found[:most])
    elif not found:
        click.echo("nothing was changed" if not query else "nothing of that kind was changed")
    else:
        print_table(_HEADINGS, [_row(msgspec.convert(entry, AuditEntry)) for entry in found[:most]])
        if len(found) > most:
            click.echo(f"there is more: use -n, or narrow it down (shown: {most})")


def _row(entry: AuditEntry) -> tuple[str, ...]:
    who = entry.actor if entry.by in ("operator", entry.actor) else f"{entry.by} {entry.actor}"
    return shown(entry.at, "UTC"), who, entry.action, entry.target, _change(entry)


def _change(entry: AuditEntry) -> str:
    """The values that changed, as `name: before -> after`; a value that is new has no before."""
    return ", ".join(
        f"{name}: {_value(entry.before[name])} -> {_value(value)}"
        if name in entry.before
        else f"{name}: {_value(value)}"
        for name, value in entry.after.items()
        if entry.before.get(name) != value
    )


def _value(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
