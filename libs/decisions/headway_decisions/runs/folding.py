"""Fold the accepted events of a run into its record.

Each field is set by exactly one kind of event, and the state is the furthest that any event
reached, so neither the order nor the number of deliveries matters. A run ends no earlier than it
starts. Activations are a union by dependent and key.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from uuid import UUID

import msgspec
from headway_contract import lifecycle
from headway_contract.subjects import DISPATCHER
from msgspec import Struct, structs

from headway_decisions.runs.transitions import TERMINAL, RunState, next_run_state


class Completion(Struct, frozen=True, kw_only=True):
    """A run that began and completed, with clamped times and those of the worker's clock."""

    run: UUID
    started_at: datetime
    finished_at: datetime
    worker_started_at: datetime | None = None
    worker_finished_at: datetime | None = None
    output: Any = None


class Fact(Struct, frozen=True, kw_only=True):
    """One event: `at` is clamped, `worker_time` is `None` if the dispatcher published it."""

    at: datetime
    worker: str
    data: lifecycle.LeaseEvent
    worker_time: datetime | None = None
    # The runs of a `RunsCompleted`.
    completions: tuple[Completion, ...] = ()


class Run(Struct, frozen=True, kw_only=True):
    """A run's record."""

    id: UUID
    state: RunState = "pending"
    worker: str | None = None
    host: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    worker_started_at: datetime | None = None
    worker_finished_at: datetime | None = None
    failure: lifecycle.Failure | None = None
    output: Any = None
    cancel_reason: str | None = None
    activations: tuple[lifecycle.Activation, ...] = ()

    @property
    def ended(self) -> bool:
        """Whether its outcome is decided."""
        return self.state in TERMINAL


def completions(
    data: lifecycle.RunsCompleted, *, created_at: datetime | None = None, now: datetime
) -> tuple[Completion, ...]:
    """Return the completions of an event, with times between the creation of its lease and now."""
    found = []
    for run in data.runs:
        began, ended = in_utc(run.started_at), _later(run.started_at, run.seconds)
        started_at = clamp(run.started_at, created_at=created_at or run.started_at, now=now)
        found.append(
            Completion(
                run=run.run,
                started_at=started_at,
                finished_at=max(started_at, now if ended is None else min(ended, now)),
                worker_started_at=began,
                worker_finished_at=ended,
                output=run.output,
            )
        )
    return tuple(found)


def in_utc(time: datetime) -> datetime | None:
    """Convert to UTC; returns `None` for a time outside the years 1 to 9999 there."""
    try:
        return time.astimezone(UTC)
    except OverflowError:
        return None


def _later(time: datetime, seconds: float) -> datetime | None:
    try:
        return (time + timedelta(seconds=seconds)).astimezone(UTC)
    except OverflowError:
        return None


def clamp(time: datetime, *, created_at: datetime, now: datetime) -> datetime:
    """Clamp a publisher's time to the creation of the run, which wins, and now."""
    return max(min(time, now), created_at)


def end_of(run: Run, at: datetime) -> datetime:
    """Clamp the end of a run to its start."""
    return at if run.started_at is None else max(at, run.started_at)


def unite(activations: Iterable[lifecycle.Activation]) -> tuple[lifecycle.Activation, ...]:
    """Return one activation for each dependent and key, in order; the lesser encoded input wins."""
    united: dict[tuple[str, str], lifecycle.Activation] = {}
    for activation in activations:
        named = (activation.manifest, activation.key)
        known = united.get(named)
        if known is None or _encoded_input(activation) < _encoded_input(known):
            united[named] = activation
    return tuple(united[named] for named in sorted(united))


def _encoded_input(activation: lifecycle.Activation) -> bytes:
    return msgspec.json.encode(activation.input, order="deterministic")


def fold(run: Run, fact: Fact) -> Run:
    """Apply an event to the record of a run; any order of events gives the same record."""
    if fact.worker != DISPATCHER:
        run = structs.replace(run, worker=fact.worker)
    match fact.data:
        case lifecycle.LeaseClaimed(host=host):
            return structs.replace(run, host=host)
        case lifecycle.LeaseRenewed() | lifecycle.LeaseRevoked():
            return run
        case lifecycle.RunStarted():
            # A late start does not move an ended run back.
            state = next_run_state(run.state, "started") if run.state == "pending" else run.state
            end = run.finished_at
            return structs.replace(
                run,
                state=state,
                started_at=fact.at,
                worker_started_at=fact.worker_time,
                finished_at=None if end is None else max(end, fact.at),
            )
        case lifecycle.RunActivated(activations=activations):
            return structs.replace(run, activations=unite([*run.activations, *activations]))
        case lifecycle.RunCompleted(output=output):
            return _finish(run, "completed", fact, output=output)
        case lifecycle.RunFailed(failure=failure):
            return _finish(run, "failed", fact, failure=failure)
        case lifecycle.RunCancelled(reason=reason):
            return _finish(run, "cancelled", fact, cancel_reason=reason)
    raise TypeError(f"cannot fold an event of type {type(fact.data).__name__}")


def _finish(
    run: Run, move: Literal["completed", "failed", "cancelled"], fact: Fact, **outcome: Any
) -> Run:
    at = end_of(run, fact.at)
    if run.state == move and run.finished_at == at:
        return run
    return structs.replace(
        run,
        state=next_run_state(run.state, move),
        finished_at=at,
        worker_finished_at=fact.worker_time,
        **outcome,
    )
