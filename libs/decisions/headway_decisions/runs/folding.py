"""The fold: a run's record as a function of its accepted events.

Every field is filled by exactly one kind of event, and the state is the furthest one
that any event reached. So the order in which events arrive does not matter, nor how
often; which of two rival outcomes counts was decided before, when it was accepted.
A run ends no earlier than it starts: an earlier end is moved to the start.
Activations are a union: one for each dependent and key, told in a fixed order.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal, assert_never
from uuid import UUID

import msgspec
from headway_contract.lifecycle import (
    Activation,
    Failure,
    LeaseClaimed,
    LeaseRenewed,
    LeaseRevoked,
    RunActivated,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
)
from headway_contract.subjects import DISPATCHER
from msgspec import Struct, structs

from headway_decisions.runs.transitions import TERMINAL, RunState, next_run_state

Lifecycle = (
    LeaseClaimed
    | LeaseRenewed
    | LeaseRevoked
    | RunStarted
    | RunActivated
    | RunCompleted
    | RunFailed
    | RunCancelled
)


class Fact(Struct, frozen=True, kw_only=True):
    """One event as history keeps it: what, when, and if it counts.

    `at` is clamped by the dispatcher; `worker_time` is the time by the clock of the worker that
    published the event, and `None` if the dispatcher did.
    """

    at: datetime
    worker: str
    data: Lifecycle
    worker_time: datetime | None = None
    accepted: bool = True


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
    failure: Failure | None = None
    output: Any = None
    cancel_reason: str | None = None
    activations: tuple[Activation, ...] = ()

    @property
    def ended(self) -> bool:
        """Whether its outcome is decided."""
        return self.state in TERMINAL


def fold(run: Run, facts: Iterable[Fact]) -> Run:
    """Apply events in the order given; any order gives the same record."""
    for fact in facts:
        if fact.accepted:
            run = _apply(run, fact)
    return run


def clamp(time: datetime, *, created_at: datetime, now: datetime) -> datetime:
    """Clamp a publisher's time to the creation of the run and now.

    If the dispatcher's own clock was set back behind the creation, the creation counts.
    """
    return max(min(time, now), created_at)


def end_of(run: Run, at: datetime) -> datetime:
    """Clamp the end of a run to its start."""
    return at if run.started_at is None else max(at, run.started_at)


def unite(activations: Iterable[Activation]) -> tuple[Activation, ...]:
    """One activation for each dependent and key, in a fixed order.

    Should one key ever come with two inputs, the lesser counts, whichever came first.
    """
    united: dict[tuple[str, str], Activation] = {}
    for activation in activations:
        named = (activation.manifest, activation.key)
        known = united.get(named)
        if known is None or _spelling(activation) < _spelling(known):
            united[named] = activation
    return tuple(united[named] for named in sorted(united))


def _spelling(activation: Activation) -> bytes:
    return msgspec.json.encode(activation.input, order="deterministic")


def _apply(run: Run, fact: Fact) -> Run:
    if fact.worker != DISPATCHER:
        run = structs.replace(run, worker=fact.worker)
    match fact.data:
        case LeaseClaimed(host=host):
            return structs.replace(run, host=host)
        case LeaseRenewed() | LeaseRevoked():
            return run
        case RunStarted():
            return _start(run, fact)
        case RunActivated(activations=activations):
            return structs.replace(run, activations=unite([*run.activations, *activations]))
        case RunCompleted(output=output):
            return _finish(run, "completed", fact, output=output)
        case RunFailed(failure=failure):
            return _finish(run, "failed", fact, failure=failure)
        case RunCancelled(reason=reason):
            return _finish(run, "cancelled", fact, cancel_reason=reason)
        case _:
            assert_never(fact.data)


def _start(run: Run, fact: Fact) -> Run:
    run = structs.replace(
        run,
        state=_reach(run, "started"),
        started_at=fact.at,
        worker_started_at=fact.worker_time,
    )
    if run.finished_at is None:
        return run
    return structs.replace(run, finished_at=end_of(run, run.finished_at))


def _reach(run: Run, move: Literal["started"]) -> RunState:
    """A start never takes a run back from where it already is."""
    return next_run_state(run.state, move) if run.state == "pending" else run.state


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
