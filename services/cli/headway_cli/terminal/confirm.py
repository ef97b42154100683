"""Asking before what cannot be undone: one way for every command that does such a thing.

With `--yes` nobody is asked. Where there is nobody to ask, because standard input is no terminal,
the command is refused, says what it would have hit, and how to have it done.
"""

import sys
from collections.abc import Callable

import click

yes_option = click.option("--yes", is_flag=True, help="Do not ask before it is done.")


def confirm(told: Callable[[], str | None], *, yes: bool) -> None:
    """Ask whether to do what is told, such as `delete 3 manifests`; none if it harms nothing.

    What it says may have to be looked up, so it is asked for only where somebody reads it.
    """
    what = None if yes else told()
    if what is None:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"nobody is there to be asked: add --yes to {what}")
    if not _agreed(f"{what}?"):
        click.echo("headway: nothing was done", err=True)
        raise click.Abort


def _agreed(question: str) -> bool:
    try:
        return click.confirm(question, err=True)
    except click.Abort:  # Ctrl-C leaves the cursor in the middle of the line
        click.echo(err=True)
        return False


def listed(names: list[str], most: int = 5) -> str:
    """Some names and how many more there are."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
