"""Pause manifests for maintenance, and resume them.

No work of a paused manifest starts, also not work that waits at the dispatcher, except triggers.
Times that come due during a pause are decided when it ends: the tick finds them late, and the
misfire policy of each manifest decides which of them fire. An answer can foretell that, because
the same rule computes it.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from headway_contract.manifests import (
    PauseAnswer,
    PausedManifest,
    PauseRequest,
    ResumeAnswer,
    ResumedManifest,
    ResumeRequest,
)
from headway_decisions.firing import due, manifest_state
from headway_decisions.firing.manifest_state import ManifestView
from headway_decisions.timing import timing
from headway_decisions.timing.cadence import Spaced
from headway_decisions.wording import counted, utc
from headway_errors import Invalid
from headway_postgres_kit import Connection, Database
from headway_service_kit.passes import Wakeup, seconds_until
from headway_tracing.log import get_logger
from msgspec import structs

from headway_scheduler.fire.decide import Manifest, UnreadableManifest, read_manifests
from headway_scheduler.fire.missed import skip_missed_during_pause
from headway_scheduler.fire.outbound_events import announce_switches
from headway_scheduler.fire.tick import reschedule_wake
from headway_scheduler.lookup import aware, reading, select_manifests
from headway_scheduler.store import SOURCE, audit, lock_manifests, manifests, operator

log = get_logger(__name__)

# Manifests and fire times that an answer lists.
_LISTED = 200
_FIRES_LISTED = 20
_FIRES_NAMED = 3
# Due times that are counted for one manifest, and for one answer.
_COUNTED = 1000
_COUNTED_AT_LEAST = 5
_COUNTED_IN_ALL = 50_000
# Pauses that the pass ends in one transaction.
_BATCH = 500

# The fires of manifests if their pauses end, by the state from which they were computed.
Foreseen = dict[ManifestView, ResumedManifest]


async def pause(connection: Connection, request: PauseRequest, *, now: datetime) -> PauseAnswer:
    """Pause manifests."""
    if request.until is not None and aware(request.until) <= now:
        raise Invalid(f"{utc(request.until)} has passed: name a time to come, or none")
    selected = await select_manifests(connection, request)
    locked = await lock_manifests(connection, [row["id"] for row in selected])
    if not request.dry_run:
        known = await connection.fetch(manifests["windows"], locked)
        wanted = (True, request.until, request.reason)
        fresh = [
            row["id"]
            for row in known
            if (_is_paused(row), row["paused_until"], row["pause_reason"]) != wanted
        ]
        await skip_missed_during_pause(connection, fresh, now=now)
        by = request.actor or "unknown"
        await connection.execute(manifests["pause"], fresh, now, request.until, request.reason, by)
        await reschedule_wake(connection, fresh, now=now)
        await announce_switches(connection, fresh, now=now)
        data = {"until": request.until, "reason": request.reason}
        entries = [(row["external_id"], data) for row in known if row["id"] in fresh]
        await audit(connection, "headway.manifest.paused.v1", operator(request), entries, now=now)
    rows = await connection.fetch(manifests["windows"], locked)
    verb = "would be paused" if request.dry_run else "paused"
    until = "until they are resumed" if request.until is None else f"until {utc(request.until)}"
    return PauseAnswer(
        text=f"{counted(len(rows), 'manifest')} {verb} {until}",
        count=len(rows),
        manifests=[
            PausedManifest(
                manifest=row["external_id"],
                paused_at=row["paused_at"] if _is_paused(row) else now,
                paused_until=request.until,
                reason=request.reason,
                next_due_at=row["next_due_at"],
            )
            for row in rows[:_LISTED]
        ],
        dry_run=request.dry_run,
    )


def _is_paused(row: Any) -> bool:
    return row["paused_at"] is not None and row["resumed_at"] is None


async def foresee(database: Database, request: ResumeRequest) -> Foreseen:
    """Compute the fires that follow if pauses end now, before the transaction that ends them.

    That one locks the manifests, and must not stay idle.
    """
    async with reading(database) as (connection, now):
        selected = await select_manifests(connection, request, paused=True)
        rows = await _paused_rows(connection, [row["id"] for row in selected])
        read = await read_manifests(connection, [row["id"] for row in rows], now=now)
    # In a thread, because the tick shares this process.
    resumed = await asyncio.to_thread(_foresee, rows, read, now, {})
    return {
        manifest.view: effect
        for manifest, effect in zip(read, resumed, strict=True)
        if isinstance(manifest, Manifest)
    }


async def resume(
    connection: Connection,
    request: ResumeRequest,
    *,
    now: datetime,
    foreseen: Foreseen | None = None,
) -> ResumeAnswer:
    """End the pause of manifests, and list the fires that follow.

    The fires of manifests that changed since they were `foreseen` are computed again.
    """
    ids = [row["id"] for row in await select_manifests(connection, request, paused=True)]
    if not request.dry_run:
        ids = await lock_manifests(connection, ids)
    rows = await _paused_rows(connection, ids)
    read = await read_manifests(connection, [row["id"] for row in rows], now=now)
    resumed = _foresee(rows, read, now, foreseen or {})
    if not request.dry_run:
        await _end(connection, rows, source=operator(request), now=now)
    resumed.sort(key=lambda manifest: (not _fire_count(manifest), manifest.manifest))
    fires = sum(map(_fire_count, resumed))
    text = "no selected manifest is paused"
    if resumed:
        verb = "would be resumed" if request.dry_run else "resumed"
        follows = f"{counted(fires, 'late fire')} will follow" if fires else "no late fires follow"
        text = f"{counted(len(resumed), 'manifest')} {verb}, {follows}"
    return ResumeAnswer(
        text=text,
        count=len(resumed),
        fires=fires,
        manifests=resumed[:_LISTED],
        dry_run=request.dry_run,
    )


async def _end(connection: Connection, rows: Sequence[Any], *, source: str, now: datetime) -> None:
    """End the pauses of locked manifests; the tick decides the times that came due in them."""
    ids = [row["id"] for row in rows]
    await connection.execute(manifests["resume"], ids, now)
    await reschedule_wake(connection, ids, now=now)
    await announce_switches(connection, ids, now=now)
    entries: list[tuple[str, Any]] = [(row["external_id"], {}) for row in rows]
    await audit(connection, "headway.manifest.resumed.v1", source, entries, now=now)


@dataclass(frozen=True)
class Windows:
    """The pass that ends pauses whose time is over."""

    database: Database
    relay: Wakeup
    tick: Wakeup

    async def run_once(self) -> float | None:
        """End one batch of pauses; returns how long to rest."""
        clock = self.database.clock
        async with self.database.acquire() as connection:
            now = await clock.now(connection)
            *over, later = await connection.fetch(manifests["windows_over"], now, _BATCH)
        if not over:
            next_at = later["paused_until"]
            return seconds_until(next_at, now)
        async with self.database.transaction() as connection:
            locked = await lock_manifests(connection, [row["id"] for row in over])
            now = await clock.now(connection)
            rows = [
                row
                for row in await _paused_rows(connection, locked)
                if row["paused_until"] is not None and row["paused_until"] <= now
            ]
            await _end(connection, rows, source=SOURCE, now=now)
        log.info("pauses ended", manifests=len(rows))
        self.relay.call()
        self.tick.call()
        return 0.0


async def _paused_rows(connection: Connection, ids: Sequence[UUID]) -> list[Any]:
    """Return the rows of the manifests that are paused."""
    rows = await connection.fetch(manifests["windows"], ids)
    return [row for row in rows if _is_paused(row)]


def _foresee(
    rows: Sequence[Any],
    read: Sequence[Manifest | UnreadableManifest],
    now: datetime,
    foreseen: Foreseen,
) -> list[ResumedManifest]:
    known = {row["id"]: row for row in rows}
    most = min(_COUNTED, max(_COUNTED_AT_LEAST, _COUNTED_IN_ALL // max(1, len(rows))))
    return [
        _resumed(known[manifest.id], text=f"cannot be judged: {manifest.trouble}")
        if isinstance(manifest, UnreadableManifest)
        else foreseen.get(manifest.view)
        or _foresee_fires(manifest.view, known[manifest.view.id], now, most)
        for manifest in read
    ]


def _foresee_fires(view: ManifestView, row: Any, now: datetime, most: int) -> ResumedManifest:
    """Compute the fires of one manifest by the rule that will decide them."""
    hold = None if view.hold == manifest_state.PAUSED else view.hold
    window = None if view.window is None else structs.replace(view.window, until=now)
    resumed_view = structs.replace(view, hold=hold, window=window)
    try:
        passed, more = _passed(view, now, most)
        verdict = due.judge(resumed_view, now=now)
    except Exception as error:  # noqa: BLE001 - a zone unknown here, or any fault of the rules
        return _resumed(row, text=f"cannot be judged: {error}")
    made = [entry for entry in verdict.entries if entry.decision in ("queued", "owed")]
    fires = [entry.first_due_at for entry in made if entry.cause.startswith("due:")]
    resumed = _resumed(
        row,
        policy=view.misfire.policy,
        passed=passed,
        passed_or_more=more,
        fires=fires[-_FIRES_LISTED:],
        more_fires=max(0, len(fires) - _FIRES_LISTED),
        owed=len(verdict.releases),
        follows=len(made) > len(fires),
    )
    return structs.replace(resumed, text=_resumed_message(resumed, hold))


def _fire_count(resumed: ResumedManifest) -> int:
    return len(resumed.fires) + resumed.more_fires + resumed.owed + resumed.follows


def _passed(view: ManifestView, now: datetime, most: int) -> tuple[int, bool]:
    """Count the due times without a decision; true if there are more than counted."""
    at, count = view.next_due_at, 0
    if isinstance(view.timing.cadence, Spaced):
        return int(at is not None and at <= now), False
    while at is not None and at <= now and count < most:
        count += 1
        at = timing.next_due(view.timing, at)
    return count, at is not None and at <= now


def _resumed(row: Any, **fields: Any) -> ResumedManifest:
    return ResumedManifest(
        manifest=row["external_id"],
        paused_at=row["paused_at"],
        reason=row["pause_reason"],
        **fields,
    )


def _resumed_message(resumed: ResumedManifest, hold: str | None) -> str:
    if hold is not None:
        return f"it stays held: {hold}"
    or_more = " or more" if resumed.passed_or_more else ""
    parts = [f"{resumed.passed}{or_more} due {'time' if resumed.passed == 1 else 'times'} passed"]
    if resumed.owed:
        parts.append(f"{counted(resumed.owed, 'earlier decision')} that waited for room will run")
    if resumed.follows:
        parts.append("it follows a success of its parent during the pause")
    policy = f"by its misfire policy {resumed.policy!r}"
    if resumed.fires:
        which = ", ".join(map(utc, resumed.fires[:_FIRES_NAMED]))
        rest = len(resumed.fires) - _FIRES_NAMED + resumed.more_fires
        more = f" and {rest} more" if rest > 0 else ""
        parts.append(f"{policy} it fires for {which}{more}")
    elif resumed.passed:
        parts.append(f"{policy} none of them fires")
    return "; ".join(parts)
