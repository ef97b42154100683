"""Rows of the tables that follow from history, and their comparison with history.

Fields have the names of the columns, in the order in which they are read. Other columns do not
follow from history: they are for display, or for the bookkeeping of a pass. Rows are many and never
part of a reference cycle, so the garbage collector does not visit them (`gc=False`).
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, ClassVar, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Struct

Kind = Literal["different", "missing", "unknown", "undecided"]
Absence = Literal["must_not", "may", "must"]

# In history, but changed by passes too.
NOT_COMPARED = frozenset({"start_heard_at"})


@lru_cache(maxsize=1000)
def read_terms(stored: str) -> Any:
    """Decode the terms of work; few of them differ, and the result must not be changed."""
    return msgspec.json.decode(stored)


class WorkRow(Struct, gc=False):
    """A row of `work_queue`."""

    table: ClassVar[str] = "work_queue"

    id: UUID
    group_name: str
    queued_at: datetime
    rank: datetime
    not_before: datetime
    received_at: datetime
    round: int = 1
    manifest_id: UUID | None = None
    manifest: str | None = None
    slot: int = 0
    job: str = ""
    input: Any = None
    input_schema: str | None = None
    cause: str = ""
    due_at: datetime | None = None
    priority: int = 0
    terms: Any = {}
    state: str = "queued"
    runs: int = 0
    attempts: int = 0
    run_id: UUID | None = None
    outcome: str | None = None
    settled_at: datetime | None = None
    traceparent: str | None = None
    cancel_requested_at: datetime | None = None
    cancel_reason: str | None = None
    start_by: datetime | None = None
    concurrency_key: str | None = None
    explicit: bool = False
    exclusive_lease: bool = False
    lease_id: UUID | None = None


class RunRow(Struct, gc=False):
    """A row of `metadata`."""

    table: ClassVar[str] = "metadata"

    run_id: UUID
    work_id: UUID
    lease_id: UUID
    group_name: str
    job: str
    round: int
    attempt: int
    max_run_seconds: float
    created_at: datetime
    manifest_id: UUID | None = None
    state: str = "pending"
    worker: str | None = None
    host: str | None = None
    due_at: datetime | None = None
    started_at: datetime | None = None
    start_heard_at: datetime | None = None
    finished_at: datetime | None = None
    worker_started_at: datetime | None = None
    worker_finished_at: datetime | None = None
    failure: Any = None
    output: Any = None
    cancel_reason: str | None = None
    activations: Any = None
    trace_id: str | None = None
    concurrency_key: str | None = None
    reissued: int = 0
    begun_elsewhere: int = 0


class LetterRun(Struct, frozen=True, kw_only=True, rename={"run_id": "run"}):
    """A run of the round that ended in a dead letter, as stored with the letter."""

    run_id: UUID
    attempt: int
    state: str
    worker: str | None = None
    host: str | None = None
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    failure: Any = None


class LetterRow(Struct, gc=False):
    """A row of `dead_letter`.

    `runs` are the runs of its round in order. `edit` is `None` if the input was not edited, and
    unset if the history is too old to say.
    """

    table: ClassVar[str] = "dead_letter"

    id: UUID
    work_id: UUID
    round: int
    group_name: str
    job: str
    reason: str
    failure: Any
    attempts: int
    created_at: datetime
    manifest_id: UUID | None = None
    input: Any = None
    state: str = "awaiting"
    resolved_at: datetime | None = None
    note: str | None = None
    actor: str | None = None
    manifest: str | None = None
    fingerprint: str = ""
    code_version: str = ""
    runs: list[LetterRun] = []
    edit: Any = UNSET


Row = WorkRow | RunRow | LetterRow


class Snapshot(Struct, frozen=True, kw_only=True):
    """The state of a piece of work after all events up to number `covers`."""

    covers: int
    work: WorkRow
    runs: list[RunRow]
    letters: list[LetterRow]


class WorkRows(Struct, kw_only=True, gc=False):
    """All rows of a piece of work: as folded from history, or as found in the tables."""

    work: WorkRow | None = None
    runs: dict[UUID, RunRow] = {}
    letters: dict[UUID, LetterRow] = {}

    @property
    def is_empty(self) -> bool:
        """Whether there is no row."""
        return self.work is None and not self.runs and not self.letters


class Difference(Struct, frozen=True, kw_only=True):
    """A difference between a table and history.

    `missing`: the table lacks a row. `unknown`: history does not contain the row. `undecided`: the
    scheduler has not decided the work. `different`: the values of a column differ.
    """

    table: str
    row: UUID
    kind: Kind
    column: str | None = None
    expected: Any = None
    found: Any = None


def compare(
    expected: WorkRows, found: WorkRows, *, absence: Absence = "must_not"
) -> list[Difference]:
    """Return all differences; after a prune or a clean-up rows may or must be gone (`absence`)."""
    if absence == "must":
        expected = WorkRows()
    if expected == found:
        return []
    works = [{} if rows.work is None else {rows.work.id: rows.work} for rows in (expected, found)]
    tolerant = absence == "may"
    return [
        *_compare_rows(*works, tolerant=tolerant),
        *_compare_rows(expected.runs, found.runs, tolerant=tolerant),
        *_compare_rows(expected.letters, found.letters, tolerant=tolerant),
    ]


def _compare_rows(
    expected: Mapping[UUID, Row], found: Mapping[UUID, Row], *, tolerant: bool
) -> Iterable[Difference]:
    for key in sorted(expected.keys() | found.keys()):
        wanted, actual = expected.get(key), found.get(key)
        if wanted is None and actual is not None:
            yield Difference(table=actual.table, row=key, kind="unknown")
        elif wanted is not None and actual is None:
            if not tolerant:
                yield Difference(table=wanted.table, row=key, kind="missing")
        elif wanted is not None and actual is not None and wanted != actual:
            yield from _compare_columns(key, wanted, actual)


def _compare_columns(key: UUID, wanted: Row, actual: Row) -> Iterable[Difference]:
    # The table gets the claimant of a run once more is known of it; until then its lease has it.
    pending = isinstance(wanted, RunRow) and wanted.state == "pending"
    for column in wanted.__struct_fields__:
        expected, found = getattr(wanted, column), getattr(actual, column)
        if pending and found is None and column in ("worker", "host"):
            continue
        # History does not say anything about unset columns.
        if expected != found and expected is not UNSET and column not in NOT_COMPARED:
            values = {"column": column, "expected": expected, "found": found}
            yield Difference(table=wanted.table, row=key, kind="different", **values)
