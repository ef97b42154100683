"""Backfill: the occurrences of a past range are queued after all, each once.

Each is a decision of the ledger with a cause of its own, so sending the request again doubles
nothing. They wait as what a trigger asks for does, and run oldest first, one after the other or
as many at once as `allow` lets, whatever else the overlap policy says.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from headway_contract.manifests import BackfillAnswer, BackfillRequest, TriggerRequest
from headway_decisions.firing import identity, manifest_state
from headway_decisions.firing.misfires import MOST_BACKFILLED, range_occurrences, range_problem
from headway_errors import Conflict, Invalid
from headway_postgres_kit import Connection
from msgspec import Struct

from headway_scheduler.fire.decide import queue_owed
from headway_scheduler.fire.manifest import LedgerRow, Manifest, UnreadableManifest, read_manifests
from headway_scheduler.fire.record import write_ledger
from headway_scheduler.lookup import find_manifest
from headway_scheduler.operate.changes import note_change
from headway_scheduler.operate.triggers import check_trigger
from headway_scheduler.questions import aware
from headway_scheduler.store import lock_manifests, occurrences


class Range(Struct, frozen=True, kw_only=True):
    """The occurrences of a range: all, those that a schedule fired, those backfilled before."""

    times: list[datetime]
    fired: set[datetime]
    known: set[datetime]

    def wanted(self, request: BackfillRequest) -> list[datetime]:
        """The occurrences that are queued now."""
        left_out = self.known | (self.fired if request.missed_only else set())
        return [due_at for due_at in self.times if due_at not in left_out]


async def backfill(
    connection: Connection, request: BackfillRequest, *, now: datetime
) -> BackfillAnswer:
    """Queue the occurrences of a past range, or with `dry_run` only count them."""
    row = await find_manifest(connection, request.manifest)
    await lock_manifests(connection, [row["id"]])
    [manifest] = await read_manifests(connection, [row["id"]], now=now)
    if isinstance(manifest, UnreadableManifest):
        raise Conflict(f"manifest {request.manifest!r} cannot be read: {manifest.trouble}")
    check_trigger(TriggerRequest(manifest=request.manifest), manifest, row)
    found = await _range(connection, request, manifest, now)
    wanted = found.wanted(request)
    if wanted and not request.dry_run:
        await _owe(connection, request, manifest, wanted, now)
        await queue_owed(connection, [manifest.view.id], now=now)
        data = {"since": wanted[0], "until": wanted[-1], "occurrences": len(wanted)}
        await note_change(
            connection, "headway.manifest.backfilled.v1", request, request.manifest, data, now
        )
    return _answer(request, found, wanted)


async def _range(
    connection: Connection, request: BackfillRequest, manifest: Manifest, now: datetime
) -> Range:
    since, until = aware(request.since), aware(request.until)
    kept = manifest.view.timing
    problem = range_problem(kept, since, until, now=now)
    if problem is not None:
        raise Invalid(f"manifest {request.manifest!r} cannot be backfilled: {problem}")
    times = range_occurrences(kept, since, until)
    if len(times) > MOST_BACKFILLED:
        raise Invalid(
            f"manifest {request.manifest!r} has more than {MOST_BACKFILLED} occurrences from "
            f"{since.isoformat()} to {until.isoformat()}: backfill a shorter range, then the next"
        )
    fired = await _decided(connection, manifest, times, identity.due_cause)
    known = await _decided(connection, manifest, times, identity.backfill_cause)
    return Range(
        times=times,
        fired={at for at, decision in fired.items() if decision != "skipped"},
        known=set(known),
    )


async def _decided(
    connection: Connection, manifest: Manifest, times: Sequence[datetime], cause_of: Any
) -> dict[datetime, str]:
    """What the ledger says of occurrences under one kind of cause."""
    causes = {cause_of(due_at): due_at for due_at in times}
    ids = [manifest.view.id] * len(causes)
    rows = await connection.fetch(occurrences["of_causes"], ids, list(causes))
    return {causes[row["cause"]]: row["decision"] for row in rows}


async def _owe(
    connection: Connection,
    request: BackfillRequest,
    manifest: Manifest,
    wanted: Sequence[datetime],
    now: datetime,
) -> None:
    rows = [
        LedgerRow(
            manifest=manifest.view.id,
            cause=identity.backfill_cause(due_at),
            first_due_at=due_at,
            last_due_at=due_at,
            decision="owed",
            reason=manifest_state.AWAITS_ROOM,
            actor=request.actor or None,
            explicit=True,
        )
        for due_at in wanted
    ]
    await write_ledger(connection, rows, now=now)
    if request.priority is not None:
        causes = [row.cause for row in rows]
        await connection.execute(
            occurrences["set_terms"], manifest.view.id, causes, request.priority, None
        )


def _answer(request: BackfillRequest, found: Range, wanted: Sequence[datetime]) -> BackfillAnswer:
    done = "would be queued" if request.dry_run else "queued"
    details = [f"{len(found.known)} were backfilled before"] if found.known else []
    if found.fired:
        verb = "left out" if request.missed_only else "run again"
        details.append(f"{len(found.fired)} that fired on schedule are {verb}")
    span = f", {wanted[0].isoformat()} to {wanted[-1].isoformat()}" if wanted else ""
    more = f" ({'; '.join(details)})" if details else ""
    return BackfillAnswer(
        occurrences=len(found.times),
        queued=len(wanted),
        known=len(found.known),
        fired=len(found.fired),
        text=f"{request.manifest}: {len(wanted)} of {len(found.times)} occurrences {done}"
        f"{span}{more}",
    )
