"""Output of commands: JSON documents, plain text lines and aligned tables.

Nothing is cut, except in a terminal that is too narrow: a program that reads the output gets all
of it.
"""

import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

import click
import msgspec

from headway_cli.terminal.times import shown

_NARROWEST_COLUMN = 10

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


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
    """Align columns; numbers are on the right.

    If a width is given, the longest cells are cut, but never the first column: users copy names
    and ids from it.
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
    """Write a number with its noun, as in `3 manifests`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def counts_text(numbers: Mapping[str, int]) -> str:
    """Write how much there is by reason or result, as in `3 no worker, 1 rate`."""
    return ", ".join(f"{number} {why.replace('_', ' ')}" for why, number in numbers.items())


def listed(names: Sequence[str], most: int = 5) -> str:
    """Write some names and how many more there are."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
