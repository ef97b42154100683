"""Interaction with the user: confirmation of destructive commands, and progress.

`--yes` skips the question. If standard input is not a terminal, the command is refused with a
message that names what it would change and how to confirm it. Progress appears on standard error
after a second, at a terminal only, and never together with `--json`.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import click

from headway_cli.terminal.output import printable

_QUIET_SECONDS = 1.0

yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")


def confirm(describe: Callable[[], str | None], *, yes: bool) -> None:
    """Ask whether to do what `describe` returns, such as `delete 3 manifests`.

    `None` means that there is nothing to confirm. `describe` may be slow, so it is called only if
    the question is needed.
    """
    action = None if yes else describe()
    if action is None:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"cannot ask for confirmation here: add --yes to {action}")
    if not _agreed(f"{action}?"):
        click.echo("headway: nothing was changed", err=True)
        raise click.Abort


def _agreed(question: str) -> bool:
    try:
        return click.confirm(question, err=True)
    except click.Abort:  # Ctrl-C leaves the cursor in the middle of the line
        click.echo(err=True)
        return False


class Advance(Protocol):
    """Reports progress: how far, of how much if that is known, and the current step."""

    def __call__(self, done: float, *, of: float | None = None, now: str | None = None) -> None:
        """Show it."""
        ...


@contextmanager
def progressing(title: str, *, quiet: bool = False) -> Iterator[Advance]:
    """Show progress while the body runs; yields the function that reports it."""
    if quiet or not sys.stderr.isatty():
        yield _ignore
        return
    # Not above: loading it takes as long as a short command.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[count]}", markup=False),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task(title, total=None, count="")

    def advance(done: float, *, of: float | None = None, now: str | None = None) -> None:
        count = f"{done:,.0f}" if of is None else f"{done:,.0f} of {of:,.0f}"
        bar.update(
            task,
            completed=done,
            total=of,
            count=count if done or of else "",
            description=printable(now or title),
        )

    timer = threading.Timer(_QUIET_SECONDS, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield advance
    finally:
        timer.cancel()
        timer.join()
        bar.stop()


def _ignore(done: float, *, of: float | None = None, now: str | None = None) -> None:
    """Show nothing."""
