"""`headway audit`: who changed what, when, and the values before and after."""

from datetime import datetime
from typing import Any

import click
import msgspec
from headway_contract.http import API
from msgspec import Struct

from headway_cli.serve.session import Session, asking
from headway_cli.terminal import options
from headway_cli.terminal.output import json_text
from headway_cli.terminal.times import shown


class AuditEntry(Struct, frozen=True, kw_only=True):
    """The fields of an audit entry that the table shows."""

    at: datetime
    actor: str
    by: str
    action: str
    target: str
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}


@click.command()
@click.option("--actor", help="Only changes by this person.")
@click.option("--target", help="Only changes of this manifest, group, work or dead letter.")
@click.option(
    "--action",
    "actions",
    metavar="ACTION",
    multiple=True,
    help="Only these, as in manifest.paused or 'manifest.*'; may be repeated.",
)
@click.option("--people", is_flag=True, help="Without declarations by applications.")
@options.since_option
@options.until_option
@options.most_option
@asking
def audit(
    session: Session,
    actor: str | None,
    target: str | None,
    actions: tuple[str, ...],
    people: bool,
    since: datetime | None,
    until: datetime | None,
    most: int,
) -> None:
    """Show who changed what, the newest first."""
    filters = {
        "actor": actor,
        "target": target,
        "people": "true" if people else None,
        "since": None if since is None else since.isoformat(),
        "before": None if until is None else until.isoformat(),
    }
    query = [(name, value) for name, value in filters.items() if value is not None]
    query += [("action", action) for action in actions]
    session.print_items(
        session.read_list(f"{API}/audit", query, most=most + 1),
        ("AT", "WHO", "ACTION", "TARGET", "CHANGE"),
        _row,
        empty="no matching changes" if query else "no changes yet",
        most=most,
    )


def _row(item: Any) -> tuple[str, ...]:
    entry = msgspec.convert(item, AuditEntry)
    who = entry.actor if entry.by in ("operator", entry.actor) else f"{entry.by} {entry.actor}"
    return shown(entry.at), who, entry.action, entry.target, _change(entry)


def _change(entry: AuditEntry) -> str:
    """List the values that changed, as `name: before -> after`."""
    return ", ".join(
        f"{name}: {_value(entry.before[name])} -> {_value(value)}"
        if name in entry.before
        else f"{name}: {_value(value)}"
        for name, value in entry.after.items()
        if entry.before.get(name) != value
    )


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json_text(value)
