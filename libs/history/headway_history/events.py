"""Stored events, and the data that the fold needs; some events are decoded as a new row."""

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from msgspec import UNSET, Struct, UnsetType, structs

from headway_history.rows import LetterRow, Row, RunRow, Snapshot, WorkRow

# Events that are only stored, never published.
WORK_WAITING = "headway.work.waiting.v1"
RUN_IN_DOUBT = "headway.run.in_doubt.v1"
SNAPSHOT = "headway.history.snapshot.v1"
FORGOTTEN = "headway.history.forgotten.v1"

RUNS_COMPLETED = "headway.runs.completed.v1"

_WORKER = "worker/"


class StoredEvent(Struct, frozen=True, kw_only=True):
    """An accepted event; `data` is its JSON, or the decoded part of a packed event."""

    id: int
    type: str
    source: str
    occurred_at: datetime
    recorded_at: datetime
    data: str | Struct
    work: UUID | None = None
    run: UUID | None = None
    lease: UUID | None = None

    @property
    def worker(self) -> str | None:
        """The worker that published the event; `None` if the dispatcher did."""
        return self.source.removeprefix(_WORKER) if self.source.startswith(_WORKER) else None


def worker_source(worker: str) -> str:
    """Return the source of a worker's events."""
    return f"{_WORKER}{worker}"


class Waiting(Struct, frozen=True, kw_only=True):
    """A run failed and its work waits for the next; `begun` if the body had begun."""

    round: int
    run: UUID
    runs: int
    attempts: int
    not_before: datetime
    reason: str = ""
    exclusive_lease: bool = False
    begun: bool = False
    traceparent: str | None = None


class InDoubt(Struct, frozen=True, kw_only=True):
    """The order of a run was sent again, or starts were reported without its lease."""

    run: UUID
    reissued: int
    begun_elsewhere: int


class Settled(Struct, frozen=True, kw_only=True):
    """A round of work ended."""

    round: int
    outcome: str
    run: UUID | None = None
    attempts: int
    settled_at: datetime


class CancelRequested(Struct, frozen=True, kw_only=True):
    """Work is to be cancelled; `unknown` if the request came before the work."""

    work: UUID
    round: int
    manifest_id: UUID | None = None
    manifest: str | None = None
    group: str = ""
    reason: str
    unknown: bool = False


class BroughtForward(Struct, frozen=True, kw_only=True):
    """Waiting work was moved to the front after so many `runs`."""

    round: int
    runs: int
    rank: datetime
    not_before: datetime


class LetterResolved(Struct, frozen=True, kw_only=True):
    """A dead letter was acknowledged, or retried: then with the work of the next round."""

    dead_letter: UUID
    round: int
    input: Any = UNSET
    edit: Any = UNSET
    concurrency_key: str | UnsetType | None = UNSET
    queued_at: datetime | None = None
    not_before: datetime | None = None
    rank: datetime | None = None
    runs: int = 0
    traceparent: str | None = None
    note: str | None = None
    actor: str | None = None
    resolved_at: datetime


class Lifecycle(Struct, frozen=True, kw_only=True):
    """A worker's event about a lease or a run; each type fills some fields."""

    worker_time: datetime | None = None
    host: str | None = None
    failure: Any = None
    output: Any = None
    reason: str | None = None
    activations: list[dict[str, Any]] = []


class Completed(Struct, frozen=True, kw_only=True):
    """A completed run of a packed event; with `settled_at` its work is settled."""

    run: UUID
    work: UUID | None = None
    started_at: datetime
    finished_at: datetime
    worker_started_at: datetime | None = None
    worker_finished_at: datetime | None = None
    output: Any = None
    round: int = 1
    attempts: int = 1
    settled_at: datetime | None = None

    @property
    def settled(self) -> Settled | None:
        """The end of its work, if the record says so."""
        if self.settled_at is None:
            return None
        return Settled(
            round=self.round,
            outcome="completed",
            run=self.run,
            attempts=self.attempts,
            settled_at=self.settled_at,
        )


class _Packed(Struct, frozen=True, kw_only=True):
    runs: list[Completed]


class ManifestGone(Struct, frozen=True, kw_only=True):
    """A manifest was pruned."""

    manifest_id: UUID


class Forgotten(Struct, frozen=True, kw_only=True):
    """The clean-up deleted work settled, or dead letters resolved, before a time."""

    settled_before: datetime | None = None
    resolved_before: datetime | None = None


_DECODERS = {
    type_: msgspec.json.Decoder(struct)
    for type_, struct in {
        WORK_WAITING: Waiting,
        RUN_IN_DOUBT: InDoubt,
        SNAPSHOT: Snapshot,
        "headway.work.settled.v1": Settled,
        "headway.work.cancel_requested.v1": CancelRequested,
        "headway.work.brought_forward.v1": BroughtForward,
        "headway.dead_letter.retried.v1": LetterResolved,
        "headway.dead_letter.acknowledged.v1": LetterResolved,
        "headway.lease.claimed.v1": Lifecycle,
        "headway.run.started.v1": Lifecycle,
        "headway.run.activated.v1": Lifecycle,
        "headway.run.completed.v1": Lifecycle,
        "headway.run.failed.v1": Lifecycle,
        "headway.run.cancelled.v1": Lifecycle,
        "headway.manifest.pruned.v1": ManifestGone,
        "headway.prune.confirmed.v1": ManifestGone,
        FORGOTTEN: Forgotten,
    }.items()
}
# Events that create a row: its type, and the column of its time.
_NEW_ROWS: dict[str, tuple[type[Row], str]] = {
    "headway.work.queued.v1": (WorkRow, "received_at"),
    "headway.run.dispatched.v1": (RunRow, "created_at"),
    "headway.dead_letter.created.v1": (LetterRow, "created_at"),
}
# Columns that have another name in events.
_COLUMNS = {"work": "work_id", "run": "run_id", "lease": "lease_id", "group": "group_name"}


_packed_decoder = msgspec.json.Decoder(_Packed)


def unpack(event: StoredEvent) -> list[StoredEvent]:
    """Split an event about several runs of a lease into an event for each; return others as is."""
    if event.type != RUNS_COMPLETED or not isinstance(event.data, str):
        return [event]
    return [
        structs.replace(event, run=completed.run, data=completed)
        for completed in _packed_decoder.decode(event.data).runs
    ]


def open_data(event: StoredEvent) -> Any:
    """Decode the data of an event; `None` if no table follows from it."""
    if not isinstance(event.data, str):
        return event.data
    if event.type in _NEW_ROWS:
        return _new_row(event)
    decoder = _DECODERS.get(event.type)
    return None if decoder is None else decoder.decode(event.data)


def _new_row(event: StoredEvent) -> Row:
    kind, time_column = _NEW_ROWS[event.type]
    data: dict[str, Any] = msgspec.json.decode(str(event.data))
    row = {_COLUMNS.get(name, name): value for name, value in data.items()}
    row |= {"id": data.get("dead_letter", data["work"]), time_column: event.occurred_at}
    if kind is WorkRow:
        row["not_before"] = data.get("not_before") or data["queued_at"]
    return msgspec.convert(row, kind)
