"""Tables of plain text: columns under each other, nothing cut, nothing coloured."""

from collections.abc import Mapping, Sequence


def table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Lines of aligned columns; numbers stand on the right."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
    to_the_right = [
        bool(rows) and all(type(row[index]) is int for row in rows)
        for index in range(len(headings))
    ]
    return [_line(row, widths, to_the_right) for row in [list(headings), *cells]]


def fields(told: Mapping[str, object]) -> list[str]:
    """One thing with its properties, a line each."""
    width = max(map(len, told))
    return [f"{name.ljust(width)}  {value}" for name, value in told.items()]


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None or value == "" else str(value)


def _line(row: Sequence[str], widths: Sequence[int], to_the_right: Sequence[bool]) -> str:
    padded = [
        cell.rjust(width) if right else cell.ljust(width)
        for cell, width, right in zip(row, widths, to_the_right, strict=True)
    ]
    return "  ".join(padded).rstrip()
