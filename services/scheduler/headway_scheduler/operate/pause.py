"""Windows in which manifests do not fire, for maintenance: begun and ended by operators.

Nothing of a paused manifest begins, also what waits at the dispatcher; what somebody triggers by
name does. What comes due meanwhile is not decided until the window ends: then the tick finds it
late, and the misfire policy of each manifest says what is made good. That can be told before it
happens, by the same rule that will decide it.
"""

import asyncio
import logging
from collections.abc import Sequence
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
from headway_errors import Invalid
from headway_postgres_kit import Clock, Connection, Database
from headway_service_kit.passes import Wakeup
from msgspec import structs

from headway_scheduler.fire.decide import reschedule_wake, skip_missed_during_pause
from headway_scheduler.fire.manifest import Manifest, read_manifests
from headway_scheduler.fire.record import announce_switches
from headway_scheduler.operate.selection import choose
from headway_scheduler.store import HISTORY, SOURCE, audit, lock_manifests, manifests

logger = logging.getLogger(__name__)

# What an answer has room for, and how far due times are counted.
_LISTED = 200
_FIRES_LISTED = 20
_FIRES_NAMED = 3
_COUNTED = 1000
_COUNTED_AT_LEAST = 5
_COUNTED_IN_ALL = 50_000
_AT_ONCE = 500


async def pause(connection: Connection, request: PauseRequest, *, now: datetime) -> PauseAnswer:
    """Let nothing of some manifests begin."""
    _check_until(request.until, now)
    rows = await choose(connection, request)
    locked = await lock_manifests(connection, [row["id"] for row in rows])
    if not request.dry_run:
        by = request.actor or "unknown"
        known = await connection.fetch(manifests["windows"], locked)
        fresh = [row["id"] for row in known if not _is_paused_so(row, request)]
        await skip_missed_during_pause(connection, fresh, until=now, now=now)
        await connection.execute(manifests["pause"], fresh, now, request.until, request.reason, by)
        await reschedule_wake(connection, fresh, now=now)
        await announce_switches(connection, fresh, now=now)
        data = {"until": request.until, "reason": request.reason}
        paused = await connection.fetch(manifests["windows"], fresh)
        await _audit(connection, "paused", paused, f"operator/{by}", data, now)
    rows = await connection.fetch(manifests["windows"], locked)
    return PauseAnswer(
        text=_paused_message(len(rows), request),
        count=len(rows),
        manifests=[_paused(row, request, now) for row in rows[:_LISTED]],
        dry_run=request.dry_run,
    )


def _is_paused_so(row: Any, request: PauseRequest) -> bool:
    """Whether a pause is there already, as it is asked for."""
    now = (row["paused_at"] is not None and row["resumed_at"] is None, row["paused_until"])
    return now == (True, request.until) and row["pause_reason"] == request.reason


async def resume(connection: Connection, request: ResumeRequest, *, now: datetime) -> ResumeAnswer:
    """End the pause of some manifests, and tell what they make good."""
    chosen = [row["id"] for row in await choose(connection, request, paused=True)]
    if not request.dry_run:
        chosen = await lock_manifests(connection, chosen)
    rows = await _paused_of(connection, chosen)
    told = await _foresee(connection, rows, now=now)
    if not request.dry_run:
        await end(connection, rows, source=f"operator/{request.actor or 'unknown'}", now=now)
    fires = sum(map(_made_good, told))
    told.sort(key=lambda one: (not _made_good(one), one.manifest))
    return ResumeAnswer(
        text=_resumed_message(len(told), fires, dry_run=request.dry_run),
        count=len(told),
        fires=fires,
        manifests=told[:_LISTED],
        dry_run=request.dry_run,
    )


async def end(connection: Connection, rows: Sequence[Any], *, source: str, now: datetime) -> None:
    """End the windows of manifests that are locked; the tick decides what came due in them."""
    ids = [row["id"] for row in rows]
    await connection.execute(manifests["resume"], ids, now)
    await reschedule_wake(connection, ids, now=now)
    await announce_switches(connection, ids, now=now)
    await _audit(connection, "resumed", rows, source, {}, now)


class Windows:
    """Ends the windows whose time is over, for one scheduler process."""

    def __init__(self, database: Database, *, clock: Clock, relay: Wakeup, tick: Wakeup) -> None:
        self._database = database
        self._clock = clock
        self._relay = relay
        self._tick = tick

    async def run_once(self) -> float | None:
        """End what is over; returns how long to rest."""
        async with self._database.acquire() as connection:
            now = await self._clock.now(connection)
            *over, later = await connection.fetch(manifests["windows_over"], now, _AT_ONCE)
        if not over:
            next_at = later["paused_until"]
            return None if next_at is None else max(0.0, (next_at - now).total_seconds())
        async with self._database.transaction() as connection:
            locked = await lock_manifests(connection, [row["id"] for row in over])
            now = await self._clock.now(connection)
            rows = [
                row
                for row in await _paused_of(connection, locked)
                if row["paused_until"] is not None and row["paused_until"] <= now
            ]
            await end(connection, rows, source=SOURCE, now=now)
        logger.info("the time is over for which %d manifest(s) were paused", len(rows))
        self._relay.call()
        self._tick.call()
        return 0.0


async def _paused_of(connection: Connection, locked: Sequence[UUID]) -> list[Any]:
    """Those of some manifests that are paused, now that they are locked."""
    rows = await connection.fetch(manifests["windows"], locked)
    return [row for row in rows if row["paused_at"] and not row["resumed_at"]]


async def _foresee(
    connection: Connection, rows: Sequence[Any], *, now: datetime
) -> list[ResumedManifest]:
    """What manifests make good if their windows end now."""
    known = {row["id"]: row for row in rows}
    read = await read_manifests(connection, known, now=now)
    most = min(_COUNTED, max(_COUNTED_AT_LEAST, _COUNTED_IN_ALL // max(1, len(rows))))

    def judged() -> list[ResumedManifest]:
        return [
            foreseen(one, known[one.view.id], now, most=most)
            if isinstance(one, Manifest)
            else _resumed(known[one.id], text=f"cannot be judged: {one.trouble}")
            for one in read
        ]

    # In a thread, because the tick shares this process.
    return await asyncio.to_thread(judged)


def foreseen(manifest: Manifest, row: Any, now: datetime, *, most: int) -> ResumedManifest:
    """What a paused manifest makes good if its window ends now, by the rule that decides it."""
    view = _after_window(manifest.view, now)
    try:
        passed, more = _passed(manifest.view, now, most)
        verdict = due.judge(view, now=now)
    except Exception as error:  # noqa: BLE001 - a zone unknown here, or any fault of the rules
        return _resumed(row, text=f"cannot be judged: {error}")
    made = [one for one in verdict.entries if one.decision in ("queued", "owed")]
    fires = [one.first_due_at for one in made if one.cause.startswith("due:")]
    told = _resumed(
        row,
        policy=view.misfire.policy,
        passed=passed,
        passed_or_more=more,
        fires=fires[-_FIRES_LISTED:],
        more_fires=max(0, len(fires) - _FIRES_LISTED),
        owed=len(verdict.releases),
        follows=len(made) > len(fires),
    )
    return structs.replace(told, text=_in_words(told, held=view.hold))


def _made_good(told: ResumedManifest) -> int:
    """How many fires a manifest makes when its window ends."""
    return len(told.fires) + told.more_fires + told.owed + told.follows


def _after_window(view: ManifestView, now: datetime) -> ManifestView:
    hold = None if view.hold == manifest_state.PAUSED else view.hold
    window = None if view.window is None else structs.replace(view.window, until=now)
    return structs.replace(view, hold=hold, window=window)


def _passed(view: ManifestView, now: datetime, most: int) -> tuple[int, bool]:
    """How many due times have passed without a decision, and if they are more than counted."""
    at, count = view.next_due_at, 0
    if isinstance(view.timing.cadence, Spaced):
        return int(at is not None and at <= now), False
    while at is not None and at <= now and count < most:
        count += 1
        at = timing.next_due(view.timing, at)
    return count, at is not None and at <= now


def _resumed(row: Any, **told: Any) -> ResumedManifest:
    return ResumedManifest(
        manifest=row["external_id"],
        paused_at=row["paused_at"],
        reason=row["pause_reason"],
        **told,
    )


def _in_words(told: ResumedManifest, *, held: str | None) -> str:
    if held is not None:
        return f"it stays held: {held}"
    said = [f"{told.passed}{' or more' if told.passed_or_more else ''} due time(s) passed"]
    if told.owed:
        said.append(f"{told.owed} that was decided before and waited runs")
    if told.follows:
        said.append("it follows its parent's success of meanwhile")
    if told.fires:
        which = ", ".join(_shown(one) for one in told.fires[:_FIRES_NAMED])
        rest = len(told.fires) - _FIRES_NAMED + told.more_fires
        more = f" and {rest} more" if rest > 0 else ""
        said.append(f"by its misfire policy {told.policy!r} it fires for {which}{more}")
    elif told.passed:
        said.append(f"by its misfire policy {told.policy!r} none is made good")
    return "; ".join(said)


def _paused(row: Any, request: PauseRequest, now: datetime) -> PausedManifest:
    return PausedManifest(
        manifest=row["external_id"],
        paused_at=row["paused_at"] if row["paused_at"] and not row["resumed_at"] else now,
        paused_until=request.until,
        reason=request.reason,
        next_due_at=row["next_due_at"],
    )


def _paused_message(count: int, request: PauseRequest) -> str:
    verb = "would be paused" if request.dry_run else "paused"
    until = "until they are resumed" if request.until is None else f"until {_shown(request.until)}"
    return f"{count} manifest(s) {verb} {until}"


def _resumed_message(count: int, fires: int, *, dry_run: bool) -> str:
    if not count:
        return "nothing that was meant is paused"
    verb = "would be resumed" if dry_run else "resumed"
    good = f"{fires} fire(s) make good what came due meanwhile" if fires else "nothing is made good"
    return f"{count} manifest(s) {verb}, {good}"


def _check_until(until: datetime | None, now: datetime) -> None:
    if until is None:
        return
    if until.tzinfo is None:
        raise Invalid(f"the time {until.isoformat()} has no offset: write {until.isoformat()}Z")
    if until <= now:
        raise Invalid(f"{_shown(until)} has passed: name a time to come, or none")


async def _audit(
    connection: Connection,
    what: str,
    rows: Sequence[Any],
    source: str,
    data: dict[str, Any],
    now: datetime,
) -> None:
    kind = f"headway.manifest.{what}.v1"
    records = [audit(kind, row["external_id"], source, data, now) for row in rows]
    await HISTORY.append(connection, records, now=now)


def _shown(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
