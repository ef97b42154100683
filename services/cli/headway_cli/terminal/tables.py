"""Tables of plain text: columns under each other, nothing coloured.

Nothing is cut, except in a terminal that is too narrow: a program that reads it gets all of it.
"""

import shutil
import sys
from collections.abc import Mapping, Sequence

import click

# What is cut is still worth reading.
_NARROWEST = 10


def print_table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table, in a terminal no wider than that."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in table(headings, rows, width=width):
        click.echo(line)


def table(
    headings: Sequence[str], rows: Sequence[Sequence[object]], *, width: int | None = None
) -> list[str]:
    """Lines of aligned columns; numbers stand on the right.

    Where a width is given, the longest cells make room, but never the first column: names and ids
    are there to be copied.
    """
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
    if width is not None:
        widths = _fitted(widths, width)
        cells = [
            [cell if len(cell) <= most else f"{cell[: most - 1]}…" for cell, most in pairs]
            for pairs in (zip(row, widths, strict=True) for row in cells)
        ]
    to_the_right = [
        bool(rows) and all(type(row[index]) is int for row in rows)
        for index in range(len(headings))
    ]
    return [_line(row, widths, to_the_right) for row in [list(headings), *cells]]


def _fitted(widths: Sequence[int], width: int) -> list[int]:
    """The same columns, the widest ones narrower until all fit, or none can give any more."""
    fitted = list(widths)
    spare = sum(fitted) + 2 * (len(fitted) - 1) - width
    while spare > 0:
        index = max(range(1, len(fitted)), key=fitted.__getitem__, default=0)
        if index == 0 or fitted[index] <= _NARROWEST:
            break
        fitted[index] -= 1
        spare -= 1
    return fitted


def fields(told: Mapping[str, object]) -> list[str]:
    """One thing with its properties, a line each."""
    width = max(map(len, told))
    return [f"{name.ljust(width)}  {printable(str(value))}" for name, value in told.items()]


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None or value == "" else printable(str(value))


def printable(text: str) -> str:
    """A text without what would move the cursor: it may come from anybody's program."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def _line(row: Sequence[str], widths: Sequence[int], to_the_right: Sequence[bool]) -> str:
    padded = [
        cell.rjust(width) if right else cell.ljust(width)
        for cell, width, right in zip(row, widths, to_the_right, strict=True)
    ]
    return "  ".join(padded).rstrip()
