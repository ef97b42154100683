"""Backfill the occurrences of a past range.

Each occurrence is a decision of the ledger with a cause of its own, so that a repeated request
changes nothing. They wait for room like triggers and run oldest first, one after the other or as
many at once as the overlap policy `allow` permits.
"""

from collections.abc import Callable, Sequence
from datetime import datetime

from headway_contract.manifests import BackfillAnswer, BackfillRequest, TriggerRequest
from headway_decisions.firing import due, identity
from headway_decisions.firing.misfires import MOST_BACKFILLED, range_occurrences, range_problem
from headway_errors import Invalid
from headway_postgres_kit import Connection

from headway_scheduler.fire import decide, tick
from headway_scheduler.lookup import aware, lock_manifest
from headway_scheduler.operate.triggers import read_triggered
from headway_scheduler.store import audit, occurrences, operator


async def backfill(
    connection: Connection, request: BackfillRequest, *, now: datetime
) -> BackfillAnswer:
    """Queue the occurrences of a past range, or with `dry_run` only count them."""
    manifest_id = await lock_manifest(connection, request.manifest)
    trigger = TriggerRequest(manifest=request.manifest)
    manifest = await read_triggered(connection, trigger, manifest_id, now=now)
    times = _occurrences(request, manifest, now)
    decided = await _decisions(connection, manifest, times, identity.due_cause)
    fired = {at for at, decision in decided.items() if decision != "skipped"}
    known = set(await _decisions(connection, manifest, times, identity.backfill_cause))
    left_out = known | (fired if request.missed_only else set())
    wanted = [due_at for due_at in times if due_at not in left_out]
    if wanted and not request.dry_run:
        rows = [
            decide.LedgerRow.owed(
                manifest.view.id,
                identity.backfill_cause(due_at),
                due_at,
                actor=request.actor or None,
                explicit=True,
                priority=request.priority,
            )
            for due_at in wanted
        ]
        await tick.write_ledger(connection, rows, now=now)
        await tick.advance(connection, [manifest.view.id], now=now, rule=due.queue_owed)
        data = {"since": wanted[0], "until": wanted[-1], "occurrences": len(wanted)}
        kind, entry = "headway.manifest.backfilled.v1", (request.manifest, data)
        await audit(connection, kind, operator(request), [entry], now=now)
    return BackfillAnswer(
        occurrences=len(times),
        queued=len(wanted),
        known=len(known),
        fired=len(fired),
        text=f"{request.manifest}: {len(wanted)} of {len(times)} occurrences "
        f"{_backfill_message(request, wanted, known=len(known), fired=len(fired))}",
    )


def _occurrences(
    request: BackfillRequest, manifest: decide.Manifest, now: datetime
) -> list[datetime]:
    since, until = aware(request.since), aware(request.until)
    timing = manifest.view.timing
    problem = range_problem(timing, since, until, now=now)
    if problem is not None:
        raise Invalid(f"manifest {request.manifest!r} cannot be backfilled: {problem}")
    times = range_occurrences(timing, since, until)
    if len(times) > MOST_BACKFILLED:
        raise Invalid(
            f"manifest {request.manifest!r} has more than {MOST_BACKFILLED} occurrences from "
            f"{since.isoformat()} to {until.isoformat()}: backfill a shorter range, then the next"
        )
    return times


async def _decisions(
    connection: Connection,
    manifest: decide.Manifest,
    times: Sequence[datetime],
    cause_of: Callable[[datetime], str],
) -> dict[datetime, str]:
    """Return the decisions of the ledger about occurrences, for one kind of cause."""
    causes = {cause_of(due_at): due_at for due_at in times}
    ids = [manifest.view.id] * len(causes)
    rows = await connection.fetch(occurrences["of_causes"], ids, list(causes))
    return {causes[row["cause"]]: row["decision"] for row in rows}


def _backfill_message(
    request: BackfillRequest, wanted: Sequence[datetime], *, known: int, fired: int
) -> str:
    details = [f"{known} were backfilled before"] if known else []
    if fired:
        verb = "left out" if request.missed_only else "run again"
        details.append(f"{fired} that fired on schedule are {verb}")
    span = f", {wanted[0].isoformat()} to {wanted[-1].isoformat()}" if wanted else ""
    more = f" ({'; '.join(details)})" if details else ""
    return f"{'would be queued' if request.dry_run else 'queued'}{span}{more}"
