"""Rows of the tables that follow from history, column by column.

Fields are named as the columns are. A column that stands in none of these does not follow from
history: it is there for people, or for the bookkeeping of a pass.
"""

from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec import UNSET, Struct


class WorkRow(Struct, kw_only=True):
    """A row of `work_queue`."""

    id: UUID
    round: int = 1
    manifest_id: UUID | None = None
    manifest: str | None = None
    slot: int = 0
    group_name: str
    job: str = ""
    input: Any = None
    input_schema: str | None = None
    cause: str = ""
    due_at: datetime | None = None
    queued_at: datetime
    priority: int = 0
    rank: datetime
    not_before: datetime
    terms: Any = {}
    state: str = "queued"
    runs: int = 0
    attempts: int = 0
    run_id: UUID | None = None
    outcome: str | None = None
    settled_at: datetime | None = None
    traceparent: str | None = None
    received_at: datetime
    cancel_requested_at: datetime | None = None
    cancel_reason: str | None = None
    start_by: datetime | None = None
    concurrency_key: str | None = None
    explicit: bool = False
    alone: bool = False


class RunRow(Struct, kw_only=True):
    """A row of `metadata`."""

    run_id: UUID
    work_id: UUID
    lease_id: UUID
    manifest_id: UUID | None = None
    group_name: str
    job: str
    round: int
    attempt: int
    state: str = "pending"
    worker: str | None = None
    host: str | None = None
    due_at: datetime | None = None
    created_at: datetime
    started_at: datetime | None = None
    start_heard_at: datetime | None = None
    finished_at: datetime | None = None
    worker_started_at: datetime | None = None
    worker_finished_at: datetime | None = None
    patience_seconds: float
    failure: Any = None
    output: Any = None
    cancel_reason: str | None = None
    activations: Any = None
    trace_id: str | None = None
    concurrency_key: str | None = None
    reissued: int = 0
    begun_elsewhere: int = 0


class LetterRun(Struct, frozen=True, kw_only=True):
    """One run of the round that ended in a dead letter, as the letter has it."""

    run: UUID
    attempt: int
    state: str
    worker: str | None = None
    host: str | None = None
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    failure: Any = None


class LetterRow(Struct, kw_only=True):
    """A row of `dead_letter`.

    Its `runs` are those of its round, the first one first. `edit` is none where the input stayed
    as it was, and unset where history is from before it told that.
    """

    id: UUID
    work_id: UUID
    round: int
    manifest_id: UUID | None = None
    group_name: str
    job: str
    input: Any = None
    reason: str
    failure: Any
    attempts: int
    state: str = "awaiting"
    created_at: datetime
    resolved_at: datetime | None = None
    note: str | None = None
    actor: str | None = None
    manifest: str | None = None
    fingerprint: str = ""
    code_version: str = ""
    runs: list[LetterRun] = []
    edit: Any = UNSET


Row = WorkRow | RunRow | LetterRow

# The table of each, and the column that names a row.
TABLES: dict[type[Row], tuple[str, str]] = {
    WorkRow: ("work_queue", "id"),
    RunRow: ("metadata", "run_id"),
    LetterRow: ("dead_letter", "id"),
}


class Snapshot(Struct, frozen=True, kw_only=True):
    """How one piece of work stood when all events up to `covers` were written down."""

    covers: int
    work: WorkRow
    runs: list[RunRow]
    letters: list[LetterRow]
