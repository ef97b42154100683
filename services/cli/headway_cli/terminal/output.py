"""Output of commands, confirmation and progress. Text is cut only in a narrow terminal."""

import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime

import click
import msgspec

from headway_cli.terminal.times import shown

_NARROWEST_COLUMN = 10

# Takes the amount done, `of` the total if it is known, and `now` the current step.
Advance = Callable[..., None]


def print_json(answer: object) -> None:
    """Print one indented JSON document."""
    click.echo(msgspec.json.format(msgspec.json.encode(answer), indent=2).decode())


def print_lines(lines: Iterable[str]) -> None:
    """Print lines without control characters."""
    for line in lines:
        click.echo(printable(line.expandtabs()))


def print_answer(answer: object, lines: Callable[[], Iterable[str]], *, as_json: bool) -> None:
    """Print an answer as JSON, or as lines."""
    if as_json:
        print_json(answer)
    else:
        print_lines(lines())


def window_table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Align columns, in a terminal no wider than the window."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    return table(headings, rows, width=width)


def table(
    headings: Sequence[str], rows: Sequence[Sequence[object]], *, width: int | None = None
) -> list[str]:
    """Align columns, numbers on the right; a width cuts the longest cells.

    It never cuts the first column: users copy names and ids from it.
    """
    lines = [list(headings), *([_cell(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    if width is not None:
        _narrow(widths, width)
    numeric = [all(type(row[at]) is int for row in rows) for at in range(len(headings))]
    return [
        "  ".join(
            cut(cell, most).rjust(most) if right else cut(cell, most).ljust(most)
            for cell, most, right in zip(line, widths, numeric, strict=True)
        ).rstrip()
        for line in lines
    ]


def _narrow(widths: list[int], width: int) -> None:
    """Narrow the widest columns until all fit, or none can be narrowed further."""
    while sum(widths) + 2 * (len(widths) - 1) > width:
        index = max(range(1, len(widths)), key=widths.__getitem__, default=0)
        if index == 0 or widths[index] <= _NARROWEST_COLUMN:
            return
        widths[index] -= 1


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return shown(value)
    if isinstance(value, list):
        value = ", ".join(map(str, value))
    return "-" if value is None or value == "" else printable(str(value))


def fields(properties: Mapping[str, object]) -> list[str]:
    """List the properties of one thing, a line each."""
    width = max(map(len, properties))
    return [f"{name.ljust(width)}  {_cell(value)}" for name, value in properties.items()]


def attributes(item: object, *names: str) -> dict[str, object]:
    """Take attributes of one thing by name; the label of a time leaves out `_at`."""
    labels = (name.removesuffix("_at").replace("_", " ") for name in names)
    return {label: getattr(item, name) for label, name in zip(labels, names, strict=True)}


def printable(text: str) -> str:
    """Replace control characters, which could move the cursor."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def json_text(value: object) -> str:
    """Write a value as compact JSON."""
    return msgspec.json.encode(value).decode()


def first_line(text: str, most: int = 60) -> str:
    """Take the first line of a text, cut to so many characters."""
    return cut(text.strip().partition("\n")[0], most)


def cut(text: str, most: int) -> str:
    """Cut a text to so many characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def counted(number: int, noun: str) -> str:
    """Write a number with its noun, as in `3 manifests` or `3 pieces of work`."""
    head, of, rest = noun.partition(" of ")
    return f"{number} {noun}" if number == 1 else f"{number} {head}s{of}{rest}"


def counts_text(numbers: Mapping[str, int]) -> str:
    """Write how much there is by reason or result, as in `3 no worker, 1 rate`."""
    return ", ".join(f"{number} {why.replace('_', ' ')}" for why, number in numbers.items())


def listed(names: Sequence[str], most: int = 5) -> str:
    """Write some names and how many more there are."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def confirm(describe: Callable[[], str | None], *, yes: bool) -> None:
    """Ask whether to do what `describe` returns, such as `delete 3 manifests`; not if `None`."""
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
    from rich.console import Console  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    with Console(stderr=True).status(Text(title)) as status:

        def advance(done: float, *, of: float | None = None, now: str | None = None) -> None:
            count = f"{done:,.0f}" if of is None else f"{done:,.0f} of {of:,.0f}"
            status.update(Text(f"{printable(now or title)}  {count if done or of else ''}"))

        yield advance
