"""`headway audit`: who changed what, when, and the values before and after."""

from datetime import datetime
from typing import Any

import click

from headway_cli.serve.session import Session, command
from headway_cli.terminal import options
from headway_cli.terminal.output import json_text


@command()
@click.option("--actor", help="Only changes by this actor.")
@click.option("--target", help="Only changes of this manifest, group, work or dead letter.")
@options.repeated(
    "--action", "action", "ACTION", "Only these, such as 'manifest.*'; may be repeated."
)
@options.flag("--people", "Without declarations by applications.")
@options.since_option
@options.until_option
@options.most_option
def audit(
    session: Session, people: bool, until: datetime | None, most: int, **filters: Any
) -> None:
    """List changes with their actors, the newest first."""
    query = {**filters, "people": people or None, "before": until}
    session.print_items(
        session.read_list("/audit", query, most=most + 1),
        ("AT", "WHO", "ACTION", "TARGET", "CHANGE"),
        _row,
        empty="no matching changes" if any(query.values()) else "no changes yet",
        most=most,
    )


def _row(entry: dict[str, Any]) -> tuple[object, ...]:
    actor, by = entry["actor"], entry["by"]
    who = actor if by in ("operator", actor) else f"{by} {actor}"
    at = datetime.fromisoformat(entry["at"])
    return at, who, entry["action"], entry["target"], _change(entry["before"], entry["after"])


def _change(before: dict[str, Any], after: dict[str, Any]) -> str:
    """List the values that changed, as `name: before -> after`."""
    return ", ".join(
        f"{name}: {_value(before[name])} -> {_value(value)}"
        if name in before
        else f"{name}: {_value(value)}"
        for name, value in after.items()
        if before.get(name) != value
    )


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json_text(value)
