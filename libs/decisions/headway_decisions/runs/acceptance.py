"""Decide which lifecycle events count, under the lock on their lease.

The broker's fence lets only one claimant publish. The check is repeated here, because a stream can
be purged, expire or be wiped: an event counts if it carries the lease's token and comes from the
process that holds the claim, and a run has one outcome.

A lease also stores up to which sequence its events are projected, along the chain in which every
message names its predecessor. A dispatcher that takes the lease away fences with that sequence: a
fresh reading of the stream would let a lagging projector kill a finished run.
"""

from typing import Literal
from uuid import UUID

from headway_contract import lifecycle
from headway_contract.subjects import DISPATCHER
from msgspec import Struct, structs

from headway_decisions.runs.folding import Completion, Fact, Run, fold
from headway_decisions.runs.transitions import next_run_state

Refusal = Literal[
    "wrong_token",
    "wrong_lease",
    "not_the_claimant",
    "already_claimed",
    "lease_ended",
    "unknown_run",
    "already_started",
    "run_ended",
    "reserved_kind",
]


class Lease(Struct, frozen=True, kw_only=True):
    """A lease in the projector's view."""

    id: UUID
    token: str
    claimed_by: str | None = None
    nonce: str | None = None
    # Known once the claim itself is projected.
    host: str | None = None
    ended: bool = False
    sequence: int = 0
    loose_links: dict[int, int] = {}


class Arrived(Struct, frozen=True, kw_only=True):
    """One stored message: its publisher, its place in the chain, and its events."""

    worker: str
    sequence: int
    predecessor: int
    facts: tuple[Fact, ...]


class Judged(Struct, frozen=True, kw_only=True):
    """The lease and its runs after a message, and the refusal of each event or `None`.

    `refused_runs` are runs of an accepted `RunsCompleted` for which it does not count.
    """

    lease: Lease
    runs: dict[UUID, Run]
    refusals: tuple[Refusal | None, ...]
    refused_runs: dict[UUID, Refusal] = {}


def judge(lease: Lease, runs: dict[UUID, Run], arrived: Arrived) -> Judged:
    """Accept or refuse each event of a message, in order."""
    runs = dict(runs)
    refusals: list[Refusal | None] = []
    refused_runs: dict[UUID, Refusal] = {}
    for fact in arrived.facts:
        refusal = _refusal(lease, runs, arrived, fact.data)
        refusals.append(refusal)
        if refusal is not None:
            continue
        if isinstance(fact.data, lifecycle.LeaseRevoked):
            lease = structs.replace(lease, ended=True)
        elif arrived.worker != DISPATCHER and lease.claimed_by is None:
            # Every event of a worker implies a claim.
            lease = structs.replace(lease, claimed_by=arrived.worker, nonce=fact.data.nonce)
        match fact.data:
            case lifecycle.RunsCompleted():
                refused_runs |= _complete(lease, runs, fact)
            case lifecycle.RunEvent(run=run):
                runs[run] = _with_claimant(fold(runs[run], fact), lease)
            case lifecycle.LeaseClaimed(host=host):
                lease = structs.replace(lease, host=host)
                runs = {id_: _with_claimant(run, lease) for id_, run in runs.items()}
    if runs and all(run.ended for run in runs.values()):
        lease = structs.replace(lease, ended=True)
    lease = advance(lease, arrived.predecessor, arrived.sequence)
    return Judged(lease=lease, runs=runs, refusals=tuple(refusals), refused_runs=refused_runs)


def _with_claimant(run: Run, lease: Lease) -> Run:
    """Add the claimant to a run that is not pending; the others are found by their lease."""
    if run.state == "pending" or lease.host is None:
        return run
    return structs.replace(run, host=lease.host, worker=run.worker or lease.claimed_by)


def _complete(lease: Lease, runs: dict[UUID, Run], fact: Fact) -> dict[UUID, Refusal]:
    """Apply the completions of an event; return the refused ones."""
    refused: dict[UUID, Refusal] = {}
    for completion in fact.completions:
        run = runs.get(completion.run)
        if run is None:
            refused[completion.run] = "unknown_run"
        elif run.ended:
            refused[completion.run] = "run_ended"
        else:
            runs[run.id] = _with_claimant(_completed(run, fact.worker, completion), lease)
    return refused


def _completed(run: Run, worker: str, completion: Completion) -> Run:
    """Apply a completion: the same record as its start and its end give one after the other."""
    known = run.started_at is not None
    started_at = run.started_at or completion.started_at
    return structs.replace(
        run,
        state=next_run_state(run.state, "completed"),
        worker=worker,
        started_at=started_at,
        finished_at=max(completion.finished_at, started_at),
        worker_started_at=run.worker_started_at if known else completion.worker_started_at,
        worker_finished_at=completion.worker_finished_at,
        output=completion.output,
    )


def advance(lease: Lease, predecessor: int, sequence: int) -> Lease:
    """Link a message into the chain, and advance the sequence along it."""
    links = {**lease.loose_links, predecessor: sequence}
    mark = lease.sequence
    while mark in links:
        mark = links.pop(mark)
    links = {before: after for before, after in links.items() if after > mark}
    return structs.replace(lease, sequence=mark, loose_links=links)


def _refusal(
    lease: Lease, runs: dict[UUID, Run], arrived: Arrived, data: lifecycle.LeaseEvent
) -> Refusal | None:
    if data.lease != lease.id:
        return "wrong_lease"
    if data.token != lease.token:
        return "wrong_token"
    if arrived.worker != DISPATCHER:
        is_claimed = lease.claimed_by is not None
        is_other = (lease.claimed_by, lease.nonce) != (arrived.worker, data.nonce)
        if isinstance(data, lifecycle.LeaseRevoked) or (is_claimed and is_other):
            return "not_the_claimant"
        if lease.ended and not is_claimed:
            return "lease_ended"
        if (
            isinstance(data, lifecycle.RunFailed)
            and data.failure.kind in lifecycle.DISPATCHER_KINDS
        ):
            return "reserved_kind"
    if isinstance(data, lifecycle.RunEvent):
        # A later message was projected before this one.
        overtaken = arrived.sequence < max(lease.loose_links.values(), default=0)
        return _run_refusal(runs.get(data.run), data, overtaken=overtaken)
    if isinstance(data, lifecycle.LeaseClaimed) and lease.host is not None:
        return "already_claimed"
    return None


def _run_refusal(run: Run | None, data: lifecycle.RunEvent, *, overtaken: bool) -> Refusal | None:
    """Return why a run's event does not count, or `None`; a late start of an ended run counts."""
    if run is None:
        return "unknown_run"
    if isinstance(data, lifecycle.RunStarted):
        return "already_started" if run.started_at is not None else None
    if isinstance(data, lifecycle.RunActivated) and overtaken:
        return None
    return "run_ended" if run.ended else None
