"""Interaction with the user: confirmation of destructive commands, and progress.

`--yes` skips the question. If standard input is not a terminal, the command is refused with a
message that names what it would change and how to confirm it. Progress appears on standard error
after a second, at a terminal only, and never together with `--json`.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from headway_cli.terminal.output import printable

_QUIET_SECONDS = 1.0

yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")

# Takes the amount done, `of` the total if it is known, and `now` the current step.
Advance = Callable[..., None]


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
    try:
        agreed = click.confirm(f"{action}?", err=True)
    except click.Abort:  # Ctrl-C leaves the cursor in the middle of the line
        click.echo(err=True)
        agreed = False
    if not agreed:
        click.echo("headway: nothing was changed", err=True)
        raise click.Abort


@contextmanager
def progressing(title: str, *, quiet: bool = False) -> Iterator[Advance]:
    """Show progress while the body runs; yields the function that reports it."""
    if quiet or not sys.stderr.isatty():
        yield lambda *_, **__: None
        return
    # Not above: loading it takes as long as a short command.
    from rich import progress  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415

    bar = progress.Progress(
        progress.SpinnerColumn(),
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(bar_width=24),
        progress.TextColumn("{task.fields[count]}", markup=False),
        progress.TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task(title, total=None, count="")

    def advance(done: float, *, of: float | None = None, now: str | None = None) -> None:
        count = f"{done:,.0f}" if of is None else f"{done:,.0f} of {of:,.0f}"
        bar.update(task, completed=done, total=of, description=printable(now or title))
        bar.update(task, count=count if done or of else "")

    timer = threading.Timer(_QUIET_SECONDS, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield advance
    finally:
        timer.cancel()
        timer.join()
        bar.stop()
