"""The intake: hear from the dispatcher, and move manifests on.

What is told here may come twice, late and in any order. Outcomes are known by their work
row, activations and dependents by their place in the ledger, prunes by the manifest that
is gone: a second telling finds nothing left to do.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from typing import Any
from uuid import UUID

from headway_contract import Event, subjects
from headway_contract.settled import (
    ActivationRequested,
    DeadLetterAcknowledged,
    DeadLetterRetried,
    PruneConfirmed,
    WorkSettled,
)
from headway_decisions.firing import identity
from headway_jetstream_kit import Broker, Message, Puller
from headway_jetstream_kit.consume import Intake
from headway_postgres_kit import Clock, Connection, Database
from headway_relay import events_in
from headway_service_kit.passes import Wakeup
from headway_tracing import is_recording, span, traceparent

from headway_scheduler.declare import prune
from headway_scheduler.fire.record import earliest
from headway_scheduler.outcomes import activate, settle
from headway_scheduler.store import REJECTED, manifests, occurrences

_Resolved = DeadLetterRetried | DeadLetterAcknowledged


def settled_intake(database: Database, broker: Broker, *, clock: Clock, tick: Wakeup) -> Intake:
    """The intake of what the dispatcher tells; events of other kinds are for others."""

    async def handle(messages: list[Message]) -> None:
        told = [one for message in messages for one in events_in(message)]
        with ExitStack() as traces:
            successes: dict[UUID, str] = {}
            for one in told:
                if isinstance(one.data, WorkSettled):
                    traces.enter_context(
                        span("settle", parent=one.traceparent, outcome=one.data.outcome)
                    )
                    _note_success(successes, one.data)
            async with database.transaction() as connection:
                wake_at = await take_in(connection, told, now=await clock.now(connection))
                await _tell_traces(connection, told, successes)
        # Nothing is told from here: what is due now, and fires, is the tick's business.
        tick.call_by(wake_at)

    puller = Puller(broker, subjects.SETTLED_STREAM, subjects.SETTLED_CONSUMER)
    return REJECTED.intake(database, broker, puller, handle)


def _note_success(successes: dict[UUID, str], settled: WorkSettled) -> None:
    """Remember in which trace a success was settled: dependents are linked to it."""
    context = traceparent()
    if context is not None and settled.manifest_id is not None and settled.outcome == "completed":
        successes[settled.manifest_id] = context


async def _tell_traces(
    connection: Connection, told: Sequence[Event], successes: Mapping[UUID, str]
) -> None:
    """Keep the traces that dependents will be linked to; only while somebody records them."""
    if not is_recording():
        return
    if successes:
        await connection.execute(
            manifests["tell_traces"], list(successes), list(successes.values())
        )
    woken = [
        (activation.manifest, identity.activation_cause(one.data.work, activation.key), context)
        for one in told
        if isinstance(one.data, ActivationRequested) and (context := one.traceparent)
        for activation in one.data.activations
    ]
    if woken:
        await connection.execute(occurrences["tell_traces"], *map(list, zip(*woken, strict=True)))


async def take_in(
    connection: Connection, told: Sequence[Event], *, now: datetime
) -> datetime | None:
    """Apply a batch of events; what begins a round before what ends it.

    Tells when the tick has to look at what was moved on by them, if it has to.
    """
    outcomes = _of(told, WorkSettled)
    requests = [*_of(told, ActivationRequested), *_told_again(outcomes)]
    resolutions = [one.data for one in told if isinstance(one.data, _Resolved)]
    ended, succeeded = settle.manifests_of(outcomes)
    others = {one.manifest_id for one in resolutions if one.manifest_id is not None}
    others |= await activate.targets_of(connection, requests)
    # All at once and in order, as the tick does, or the two could wait for each other.
    rows = await connection.fetch(
        manifests["lock_with_children"], list(ended | others), list(succeeded)
    )
    wake_at = [await activate.activate(connection, requests, now=now)]
    wake_at += [await settle.resolve(connection, resolved, now=now) for resolved in resolutions]
    concerned = {row["id"] for row in rows if row["id"] in ended or row["depends_on"] in succeeded}
    wake_at.append(await settle.settle(connection, outcomes, concerned, now=now))
    confirmed = [one.manifest_id for one in _of(told, PruneConfirmed)]
    await prune.confirm(connection, confirmed, now=now)
    return earliest(wake_at)


def _of(told: Sequence[Event], kind: type[Any]) -> list[Any]:
    return [one.data for one in told if isinstance(one.data, kind)]


def _told_again(outcomes: Sequence[WorkSettled]) -> list[ActivationRequested]:
    """The activations that an outcome brings along, in case their own events were lost."""
    return [
        ActivationRequested(
            work=one.work,
            round=one.round,
            run=one.run or UUID(int=0),
            manifest_id=one.manifest_id,
            manifest=one.manifest,
            group=one.group,
            activations=one.activations,
        )
        for one in outcomes
        if one.activations and one.manifest_id is not None
    ]
