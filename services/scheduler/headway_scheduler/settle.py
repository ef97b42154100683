"""What an outcome does: close its work, move its manifest on, and wake its dependents."""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from headway_contract.settled import DeadLetterAcknowledged, DeadLetterRetried, WorkSettled
from headway_decisions import identity
from headway_postgres_kit import Connection

from headway_scheduler.advance import account_for, put_to_rest, write_ledger
from headway_scheduler.ledger import LedgerRow
from headway_scheduler.store import lock_manifests, manifests, occurrences, works

COALESCED = "coalesced"

# What was asked for once and is never asked again by itself; a due time is followed by the next.
_IRREPLACEABLE = ("success:", "activation:", "trigger:")
_REPEATED = re.compile(r"^(.*)\+(\d+)$")


async def settle(connection: Connection, outcomes: Sequence[WorkSettled], *, now: datetime) -> int:
    """Close outstanding work and move its manifests on; returns how much was outstanding.

    Work that is no longer there was told before: a duplicate changes nothing.
    """
    told = {outcome.work: outcome for outcome in sorted(outcomes, key=lambda one: one.round)}
    if not told:
        return 0
    owners = await connection.fetch(works["manifests_of"], list(told))
    of = {row["manifest_id"] for row in owners if row["manifest_id"] is not None}
    parents = {row["manifest_id"] for row in owners if told[row["id"]].outcome == "completed"} - {
        None
    }
    children = {row["id"] for row in await connection.fetch(manifests["children"], list(parents))}
    # Manifests before their work, as everywhere, or two of us could wait for each other.
    locked = await lock_manifests(connection, of | children)
    rows = [
        row
        for row in await connection.fetch(works["lock"], sorted(told))
        if told[row["id"]].round >= row["round"]
    ]
    owned = [row for row in rows if row["manifest_id"] is not None]
    ends = {row["manifest_id"]: told[row["id"]].settled_at for row in owned}
    await account_for(connection, ends, until=ends, now=now)
    await connection.execute(works["remove"], [row["id"] for row in rows])
    await _tell_manifests(connection, owned, told)
    await _owe_again(connection, owned, told, now)
    await put_to_rest(connection, locked, now=now)
    await connection.fetch(manifests["retire"], list(ends))
    return len(rows)


async def resolve(
    connection: Connection, resolved: DeadLetterRetried | DeadLetterAcknowledged, *, now: datetime
) -> None:
    """A dead letter was seen to: its manifest is no longer blocked by it."""
    if resolved.manifest_id is None:
        return
    locked = await lock_manifests(connection, [resolved.manifest_id])
    if not locked:
        return
    await account_for(connection, locked, until=min(resolved.resolved_at, now), now=now)
    await connection.execute(manifests["unblock"], locked, resolved.dead_letter)
    if isinstance(resolved, DeadLetterRetried):
        await connection.execute(
            works["start_round"],
            resolved.work,
            resolved.manifest_id,
            await _cause_of(connection, resolved.manifest_id, resolved.work),
            resolved.round,
            now,
        )
    await put_to_rest(connection, locked, now=now)


async def _cause_of(connection: Connection, manifest: UUID, work: UUID) -> str:
    cause: str | None = await connection.fetchval(occurrences["cause_of"], manifest, work)
    return cause or f"replay:{work}"


async def _tell_manifests(
    connection: Connection, owned: Sequence[Any], told: dict[UUID, WorkSettled]
) -> None:
    ends = [told[row["id"]] for row in owned]
    of = [row["manifest_id"] for row in owned]
    await connection.execute(
        occurrences["tell_outcome"],
        of,
        [row["cause"] for row in owned],
        [end.outcome for end in ends],
    )
    # One row for each manifest and statement: several of its works may end in one batch.
    for turn in _turns(list(zip(of, ends, strict=True))):
        await connection.execute(
            manifests["settle"],
            [manifest for manifest, _ in turn],
            [end.outcome for _, end in turn],
            [end.settled_at for _, end in turn],
            [end.dead_letter for _, end in turn],
        )


def _turns(pairs: list[tuple[UUID, WorkSettled]]) -> list[list[tuple[UUID, WorkSettled]]]:
    """Split so that no manifest is named twice in one turn, the earlier outcome first."""
    turns: list[dict[UUID, WorkSettled]] = []
    for manifest, end in sorted(pairs, key=lambda pair: pair[1].settled_at):
        for turn in turns:
            if manifest not in turn:
                turn[manifest] = end
                break
        else:
            turns.append({manifest: end})
    return [list(turn.items()) for turn in turns]


async def _owe_again(
    connection: Connection, owned: Sequence[Any], told: dict[UUID, WorkSettled], now: datetime
) -> None:
    """A success, an activation or a trigger whose work was coalesced stays owed."""
    lost = [
        row
        for row in owned
        if told[row["id"]].outcome == COALESCED and row["cause"].startswith(_IRREPLACEABLE)
    ]
    if not lost:
        return
    known = await connection.fetch(
        occurrences["of_causes"],
        [row["manifest_id"] for row in lost],
        [row["cause"] for row in lost],
    )
    await write_ledger(
        connection,
        [
            LedgerRow(
                manifest=row["manifest_id"],
                cause=_again(row["cause"]),
                first_due_at=now,
                last_due_at=now,
                decision="owed",
                reason=COALESCED,
                actor=row["actor"],
                explicit=row["explicit"],
                has_input=row["has_input"],
                input=row["input"],
            )
            for row in known
        ],
        now=now,
    )


def _again(cause: str) -> str:
    match = _REPEATED.match(cause)
    return identity.repeated_cause(*((match[1], int(match[2]) + 1) if match else (cause, 1)))
