"""Apply the events of the dispatcher.

Events may arrive twice, late and in any order. An outcome that was applied before finds no work
row, an activation is in the ledger already, and a pruned manifest is gone: each changes nothing.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from datetime import datetime
from typing import Any
from uuid import UUID

from headway_contract import Event, settled, subjects
from headway_decisions.firing import identity
from headway_jetstream_kit import Broker, Message, Puller
from headway_jetstream_kit.consume import Intake
from headway_postgres_kit import Connection, Database
from headway_relay import events_in
from headway_service_kit.passes import Wakeup
from headway_tracing import is_recording, span, traceparent

from headway_scheduler.declare import prune
from headway_scheduler.fire.record import earliest
from headway_scheduler.outcomes import activate, settle
from headway_scheduler.store import REJECTED, manifests, occurrences


def settled_intake(database: Database, broker: Broker, *, tick: Wakeup) -> Intake:
    """Return the intake of the stream of settled work; it ignores other events."""

    async def handle(messages: list[Message]) -> None:
        events = [event for message in messages for event in events_in(message)]
        with ExitStack() as traces:
            # Dependents link to the trace in which the success of their parent was settled.
            successes: dict[UUID, str] = {}
            for event in events:
                if isinstance(event.data, settled.WorkSettled):
                    outcome, parent = event.data.outcome, event.data.manifest_id
                    traces.enter_context(span("settle", parent=event.traceparent, outcome=outcome))
                    context = traceparent()
                    if parent is not None and outcome == "completed" and context is not None:
                        successes[parent] = context
            async with database.transaction() as connection:
                now = await database.clock.now(connection)
                wake_at = await take_in(connection, events, now=now)
                if is_recording():
                    await _store_traces(connection, events, successes)
        tick.call_by(wake_at)

    puller = Puller(broker, subjects.SETTLED_STREAM, subjects.SETTLED_CONSUMER)
    return REJECTED.intake(database, broker, puller, handle)


async def _store_traces(
    connection: Connection, events: Sequence[Event], successes: dict[UUID, str]
) -> None:
    """Store the traces that the work of dependents links to."""
    if successes:
        await connection.execute(
            manifests["store_traces"], list(successes), list(successes.values())
        )
    activated = [
        (activation.manifest, identity.activation_cause(event.data.work, activation.key), context)
        for event in events
        if isinstance(event.data, settled.ActivationRequested) and (context := event.traceparent)
        for activation in event.data.activations
    ]
    if activated:
        columns = map(list, zip(*activated, strict=True))
        await connection.execute(occurrences["store_traces"], *columns)


async def take_in(
    connection: Connection, events: Sequence[Event], *, now: datetime
) -> datetime | None:
    """Apply a batch of events, starts of rounds before their ends.

    Returns when the tick must look at the manifests that moved on, or `None`.
    """
    outcomes = _of(events, settled.WorkSettled)
    # An outcome repeats its activations, in case their own events were lost.
    requests = [
        *_of(events, settled.ActivationRequested),
        *(
            settled.ActivationRequested(
                work=outcome.work,
                round=outcome.round,
                run=outcome.run or UUID(int=0),
                manifest_id=outcome.manifest_id,
                manifest=outcome.manifest,
                group=outcome.group,
                activations=outcome.activations,
            )
            for outcome in outcomes
            if outcome.activations and outcome.manifest_id is not None
        ),
    ]
    resolutions = _of(events, settled.DeadLetterRetried, settled.DeadLetterAcknowledged)
    ended = {outcome.manifest_id for outcome in outcomes} - {None}
    succeeded = {outcome.manifest_id for outcome in outcomes if outcome.outcome == "completed"} - {
        None
    }
    others = {resolved.manifest_id for resolved in resolutions} - {None}
    others |= await activate.targets_of(connection, requests)
    # All of them at once, in the lock order of the tick, to avoid a deadlock.
    rows = await connection.fetch(
        manifests["lock_with_children"], list(ended | others), list(succeeded)
    )
    wake_at = [await activate.activate(connection, requests, now=now)]
    wake_at += [await settle.resolve(connection, resolved, now=now) for resolved in resolutions]
    affected = {row["id"] for row in rows if row["id"] in ended or row["depends_on"] in succeeded}
    wake_at.append(await settle.settle(connection, outcomes, affected, now=now))
    confirmed = [event.manifest_id for event in _of(events, settled.PruneConfirmed)]
    await prune.confirm(connection, confirmed, now=now)
    return earliest(wake_at)


def _of(events: Sequence[Event], *kinds: type[Any]) -> list[Any]:
    return [event.data for event in events if isinstance(event.data, kinds)]
