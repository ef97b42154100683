"""Stored events, and the data that the fold needs; some events are decoded as a new row."""

from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from typing import Any, ClassVar
from uuid import UUID

import msgspec
from msgspec import UNSET, Struct, UnsetType, field, structs

from headway_history.rows import LetterRow, RunRow, Snapshot, WorkRow, read_terms

# Events that are only stored, never published.
WORK_WAITING = "headway.work.waiting.v1"
RUN_IN_DOUBT = "headway.run.in_doubt.v1"
SNAPSHOT = "headway.history.snapshot.v1"
FORGOTTEN = "headway.history.forgotten.v1"

WORK_QUEUED = "headway.work.queued.v1"
RUN_DISPATCHED = "headway.run.dispatched.v1"
LEASE_CLAIMED = "headway.lease.claimed.v1"
RUNS_COMPLETED = "headway.runs.completed.v1"

_WORKER = "worker/"


class StoredEvent(Struct, frozen=True, gc=False):
    """An accepted event, or the part of a packed event about one run; `data` is its JSON.

    Its fields are in the order in which the statements read them.
    """

    id: int
    type: str
    source: str
    occurred_at: datetime
    recorded_at: datetime
    data: str
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


class Lifecycle(Struct, frozen=True, kw_only=True, gc=False):
    """A worker's event about a lease or a run; each type fills some fields."""

    worker_time: datetime | None = None
    host: str | None = None
    failure: Any = None
    output: Any = None
    reason: str | None = None
    activations: list[dict[str, Any]] = []


class Completed(Struct, frozen=True, kw_only=True, gc=False):
    """A completed run of a packed event; with `settled_at` its work is settled."""

    outcome: ClassVar[str] = "completed"

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


class RunsCompleted(Struct, frozen=True, kw_only=True, gc=False):
    """The part of a packed event about one run."""

    runs: tuple[Completed]


class ManifestGone(Struct, frozen=True, kw_only=True):
    """A manifest was pruned."""

    manifest_id: UUID


class Forgotten(Struct, frozen=True, kw_only=True):
    """The clean-up deleted work settled, or dead letters resolved, before a time."""

    settled_before: datetime | None = None
    resolved_before: datetime | None = None


class Queued(WorkRow):
    """New work, with the names of its event; the event has the time."""

    id: UUID = field(name="work")
    group_name: str = field(name="group")
    not_before: datetime | None = None  # type: ignore[assignment]
    received_at: datetime | None = None  # type: ignore[assignment]
    terms: msgspec.Raw = msgspec.Raw(b"{}")

    def row(self, at: datetime) -> WorkRow:
        """Return the row."""
        row = WorkRow(*structs.astuple(self))
        row.not_before, row.received_at = self.not_before or self.queued_at, at
        row.terms = read_terms(str(self.terms, "utf-8"))
        return row


class Dispatched(RunRow):
    """A new run, with the names of its event; the event has the time."""

    run_id: UUID = field(name="run")
    work_id: UUID = field(name="work")
    lease_id: UUID = field(name="lease")
    group_name: str = field(name="group")
    created_at: datetime | None = None  # type: ignore[assignment]

    def row(self, at: datetime) -> RunRow:
        """Return the row."""
        row = RunRow(*structs.astuple(self))
        row.created_at = at
        return row


class LetterCreated(LetterRow):
    """A new dead letter, with the names of its event; the event has the time."""

    id: UUID = field(name="dead_letter")
    work_id: UUID = field(name="work")
    group_name: str = field(name="group")
    created_at: datetime | None = None  # type: ignore[assignment]

    def row(self, at: datetime) -> LetterRow:
        """Return the row."""
        row = LetterRow(*structs.astuple(self))
        row.created_at = at
        return row


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
        LEASE_CLAIMED: Lifecycle,
        "headway.run.started.v1": Lifecycle,
        "headway.run.activated.v1": Lifecycle,
        "headway.run.completed.v1": Lifecycle,
        "headway.run.failed.v1": Lifecycle,
        "headway.run.cancelled.v1": Lifecycle,
        "headway.manifest.pruned.v1": ManifestGone,
        "headway.prune.confirmed.v1": ManifestGone,
        FORGOTTEN: Forgotten,
        WORK_QUEUED: Queued,
        RUN_DISPATCHED: Dispatched,
        RUNS_COMPLETED: RunsCompleted,
        "headway.dead_letter.created.v1": LetterCreated,
    }.items()
}
_NEW_ROWS = (Queued, Dispatched, LetterCreated)


# Many runs may share a lease.
open_claim: Callable[[str], Lifecycle] = lru_cache(maxsize=1000)(_DECODERS[LEASE_CLAIMED].decode)


def open_data(event: StoredEvent) -> Any:
    """Decode the data of an event; `None` if no table follows from it."""
    decoder = _DECODERS.get(event.type)
    data: Any = None if decoder is None else decoder.decode(event.data)
    if isinstance(data, _NEW_ROWS):
        return data.row(event.occurred_at)
    return data.runs[0] if isinstance(data, RunsCompleted) else data
