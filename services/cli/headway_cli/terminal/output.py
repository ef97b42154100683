"""Output of commands: JSON documents, plain text lines and aligned tables.

Nothing is cut, except in a terminal that is too narrow: a program that reads the output gets all
of it.
"""

import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import click
import msgspec

Item = TypeVar("Item")

_NARROWEST_COLUMN = 10

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def print_json(answer: object) -> None:
    """Print one indented JSON document."""
    click.echo(msgspec.json.format(msgspec.json.encode(answer), indent=2).decode())


def print_lines(lines: Iterable[str]) -> None:
    """Print lines without control characters."""
    for line in lines:
        click.echo(printable(line.expandtabs()))


def window_table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Align columns, in a terminal no wider than the window."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    return table(headings, rows, width=width)


def print_items(
    items: Sequence[Item],
    headings: Sequence[str],
    row: Callable[[Item], Sequence[object]],
    *,
    empty: str,
    as_json: bool,
    most: int | None = None,
) -> None:
    """Print a list as JSON or as a table; `most` items of it, and whether there are more."""
    shown = items[:most]
    if as_json:
        print_json(shown)
    elif not items:
        click.echo(empty)
    else:
        print_lines(window_table(headings, [row(item) for item in shown]))
        if len(items) > len(shown):
            click.echo(f"there are more: use -n, or narrow the filters (shown: {most})")


def table(
    headings: Sequence[str], rows: Sequence[Sequence[object]], *, width: int | None = None
) -> list[str]:
    """Align columns; numbers are on the right.

    If a width is given, the longest cells are cut, but never the first column: users copy names
    and ids from it.
    """
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
    if width is not None:
        widths = _fit(widths, width)
        cells = [
            [cell if len(cell) <= most else f"{cell[: most - 1]}…" for cell, most in pairs]
            for pairs in (zip(row, widths, strict=True) for row in cells)
        ]
    to_the_right = [
        bool(rows) and all(type(row[index]) is int for row in rows)
        for index in range(len(headings))
    ]
    return [_line(row, widths, to_the_right) for row in [list(headings), *cells]]


def _fit(widths: Sequence[int], width: int) -> list[int]:
    """Narrow the widest columns until all fit, or none can be narrowed further."""
    fitted = list(widths)
    excess = sum(fitted) + 2 * (len(fitted) - 1) - width
    while excess > 0:
        index = max(range(1, len(fitted)), key=fitted.__getitem__, default=0)
        if index == 0 or fitted[index] <= _NARROWEST_COLUMN:
            break
        fitted[index] -= 1
        excess -= 1
    return fitted


def _line(row: Sequence[str], widths: Sequence[int], to_the_right: Sequence[bool]) -> str:
    padded = [
        cell.rjust(width) if right else cell.ljust(width)
        for cell, width, right in zip(row, widths, to_the_right, strict=True)
    ]
    return "  ".join(padded).rstrip()


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None or value == "" else printable(str(value))


def fields(properties: Mapping[str, object]) -> list[str]:
    """List the properties of one thing, a line each."""
    width = max(map(len, properties))
    return [f"{name.ljust(width)}  {printable(str(value))}" for name, value in properties.items()]


def printable(text: str) -> str:
    """Replace control characters, which could move the cursor."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def json_text(value: object) -> str:
    """Write a value as compact JSON."""
    return msgspec.json.encode(value).decode()


def first_line(text: str, most: int = 60) -> str:
    """Take the first line of a text, cut to so many characters."""
    line = text.strip().partition("\n")[0]
    return line if len(line) <= most else f"{line[: most - 1]}…"


def counted(number: int, noun: str) -> str:
    """Write a number with its noun, as in `3 manifests`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def listed(names: Sequence[str], most: int = 5) -> str:
    """Write some names and how many more there are."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
