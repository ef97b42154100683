"""Say which manifests a command means: by their ids, by a group, by labels, or all."""

from collections.abc import Callable
from typing import Any

import click

from headway_cli.terminal.completion import complete_groups, complete_manifests


def choosing(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a selection: `manifest_ids`, `group`, `labels` and `everything`."""
    for decorate in (
        click.option("--all", "everything", is_flag=True, help="All manifests."),
        click.option(
            "--label",
            "labels",
            metavar="NAME=VALUE",
            multiple=True,
            callback=_read_labels,
            help="Those with this label; may be repeated, then all must fit.",
        ),
        click.option("--group", help="Those of a group.", shell_complete=complete_groups),
        click.argument(
            "manifest_ids", metavar="[ID]...", nargs=-1, shell_complete=complete_manifests
        ),
    ):
        command = decorate(command)
    return command


def _read_labels(
    context: click.Context, parameter: click.Parameter, given: tuple[str, ...]
) -> dict[str, str]:
    labels = {}
    for label in given:
        name, equals, value = label.partition("=")
        if not equals or not name:
            raise click.BadParameter(
                f"{label!r} is no label: write name=value.", context, parameter
            )
        labels[name] = value
    return labels


def check_choice(
    manifest_ids: tuple[str, ...], *, group: str | None, labels: dict[str, str], everything: bool
) -> None:
    """Refuse a command line that says nothing, or says it in two ways."""
    if sum((bool(manifest_ids), group is not None, bool(labels), everything)) != 1:
        raise click.UsageError("give ids of manifests, or --group, or --label, or --all")
