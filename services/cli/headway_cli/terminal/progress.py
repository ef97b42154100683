"""Progress of what takes long: a line on standard error, for people at a terminal only.

It appears after a second, so that what is quick shows nothing, and is wiped away at the end. What
`--json` is given to shows none, for somebody's program may hold both streams together.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from headway_cli.terminal.tables import printable

_QUIET_SECONDS = 1.0


class Advance(Protocol):
    """Says how far it is, of how much if that is known, and what it is at."""

    def __call__(self, done: float, *, of: float | None = None, now: str | None = None) -> None:
        """Show it."""
        ...


@contextmanager
def progressing(what: str, *, quiet: bool = False) -> Iterator[Advance]:
    """Show progress while the body runs; yields what is told of each step."""
    if quiet or not sys.stderr.isatty():
        yield _nobody_looks
        return
    # Loaded only where somebody looks: it takes as long as a short command.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    shown = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[count]}", markup=False),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = shown.add_task(what, total=None, count="")

    def advance(done: float, *, of: float | None = None, now: str | None = None) -> None:
        count = f"{done:,.0f}" if of is None else f"{done:,.0f} of {of:,.0f}"
        shown.update(
            task,
            completed=done,
            total=of,
            count=count if done or of else "",
            description=printable(now or what),
        )

    waiting = threading.Timer(_QUIET_SECONDS, shown.start)
    waiting.daemon = True
    waiting.start()
    try:
        yield advance
    finally:
        waiting.cancel()
        waiting.join()
        shown.stop()


def _nobody_looks(done: float, *, of: float | None = None, now: str | None = None) -> None:
    """Nothing to show."""
