"""Apply resolved dead letters: unblock their manifests, and start the rounds of retries."""

from datetime import datetime

from headway_contract.settled import DeadLetterAcknowledged, DeadLetterRetried
from headway_postgres_kit import Connection

from headway_scheduler.fire.missed import skip_missed_during_pause
from headway_scheduler.fire.tick import reschedule_wake
from headway_scheduler.store import lock_manifests, manifests, occurrences, works


async def resolve(
    connection: Connection, resolved: DeadLetterRetried | DeadLetterAcknowledged, *, now: datetime
) -> datetime | None:
    """Unblock the manifest of a resolved dead letter; returns when the tick must look at it.

    A retry that was applied before starts nothing: its round may be over, and if its decision was
    deleted, the resolved dead letter is the only trace of it.
    """
    if resolved.manifest_id is None:
        if isinstance(resolved, DeadLetterRetried):
            over = await connection.fetchval(works["overtaken"], resolved.work)
            if over is None or over < resolved.round:
                await _start_round(connection, resolved, f"replay:{resolved.work}", now)
        return None
    locked = await lock_manifests(connection, [resolved.manifest_id])
    if not locked:
        return None
    until = min(resolved.resolved_at, now)
    await skip_missed_during_pause(connection, locked, until=until, now=now)
    is_new = await connection.fetchval(occurrences["note_resolved"], resolved.dead_letter, now)
    await connection.execute(manifests["unblock"], locked, resolved.dead_letter)
    if is_new and isinstance(resolved, DeadLetterRetried):
        known = await connection.fetchrow(
            occurrences["of_work"], resolved.manifest_id, resolved.work
        )
        if known is None or known["settled_round"] < resolved.round:
            cause = f"replay:{resolved.work}" if known is None else known["cause"]
            await _start_round(connection, resolved, cause, now)
    wake_at = await reschedule_wake(connection, locked, now=now)
    # A one-shot whose time came while it was blocked is over.
    await connection.fetch(manifests["retire"], locked)
    return wake_at


async def _start_round(
    connection: Connection, retried: DeadLetterRetried, cause: str, now: datetime
) -> None:
    """Make the work of a retried dead letter outstanding again."""
    await connection.execute(
        works["start_round"],
        retried.work,
        retried.manifest_id,
        cause,
        retried.round,
        now,
        retried.slot,
    )
