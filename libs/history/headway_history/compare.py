"""Where tables and history differ: row by row, column by column."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar
from uuid import UUID

from msgspec import UNSET, Struct

from headway_history.folding import Folded
from headway_history.rows import TABLES, LetterRow, Row, RunRow, WorkRow

Kind = Literal["different", "missing", "unknown", "undecided"]
Absence = Literal["must_not", "may", "must"]

# Known to history, but a matter of liveness: passes may move it.
NOT_COMPARED = frozenset({"start_heard_at"})


class Difference(Struct, frozen=True, kw_only=True):
    """One thing that a table says and history does not, or the other way about.

    `missing`: history tells of a row that is not there. `unknown`: there is a row of which
    history tells nothing. `undecided`: there is work that the scheduler has not decided.
    Otherwise one column differs.
    """

    table: str
    row: UUID
    kind: Kind
    column: str | None = None
    expected: Any = None
    found: Any = None


class Found(Struct, kw_only=True):
    """The rows of one piece of work that are in the tables."""

    work: WorkRow | None = None
    runs: dict[UUID, RunRow] = {}
    letters: dict[UUID, LetterRow] = {}

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left of the work."""
        return self.work is None and not self.runs and not self.letters


def compare(expected: Folded, found: Found, *, absence: Absence = "must_not") -> list[Difference]:
    """All differences. `absence` tells whether rows that history tells of may be, or must be, gone.

    They may while a prune or the clean-up is at them, and must once a prune is confirmed.
    """
    if absence == "must":
        expected = Folded()
    tolerant = absence == "may"
    return [
        *_rows(_one(expected.work), _one(found.work), tolerant=tolerant),
        *_rows(expected.runs, found.runs, tolerant=tolerant),
        *_rows(expected.letters, found.letters, tolerant=tolerant),
    ]


def _one(work: WorkRow | None) -> dict[UUID, WorkRow]:
    return {} if work is None else {work.id: work}


_Kind = TypeVar("_Kind", WorkRow, RunRow, LetterRow)


def _rows(
    expected: Mapping[UUID, _Kind], found: Mapping[UUID, _Kind], *, tolerant: bool
) -> Iterable[Difference]:
    for key in sorted(expected.keys() | found.keys()):
        wanted, there = expected.get(key), found.get(key)
        if wanted is None and there is not None:
            yield Difference(table=_table(there), row=key, kind="unknown")
        elif wanted is not None and there is None:
            if not tolerant:
                yield Difference(table=_table(wanted), row=key, kind="missing")
        elif wanted is not None and there is not None and wanted != there:
            yield from _columns(key, wanted, there)


def _columns(key: UUID, wanted: Row, there: Row) -> Iterable[Difference]:
    for column in columns_of(type(wanted)):
        expected, found = getattr(wanted, column), getattr(there, column)
        # What is unset history does not tell.
        if expected is UNSET or column in NOT_COMPARED:
            continue
        if expected != found:
            yield Difference(
                table=_table(wanted),
                row=key,
                kind="different",
                column=column,
                expected=expected,
                found=found,
            )


def _table(row: Row) -> str:
    return TABLES[type(row)][0]


def columns_of(row: type[Row]) -> Sequence[str]:
    """The columns of a table that follow from history."""
    return row.__struct_fields__
