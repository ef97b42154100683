"""Pause manifests for maintenance, and resume them.

No work of a paused manifest starts, also not work that waits at the dispatcher, except triggers.
Pauses stack: a manifest resumes when the last pause that covers it has ended, and a request to
resume ends no other pause than the one that it names. Times that come due meanwhile are decided
then: the tick finds them late, and the misfire policy of each manifest decides which of them fire.
An answer can foretell that, because the same rule computes it.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from headway_clock import new_id
from headway_contract.manifests import (
    PauseAnswer,
    PausedManifest,
    PauseRequest,
    ResumeAnswer,
    ResumedManifest,
    ResumeRequest,
)
from headway_decisions.declaring.lookup import by_whom
from headway_decisions.firing.manifest_state import Window
from headway_decisions.firing.pauses import covers_text, held_until, open_windows, pause_text
from headway_decisions.wording import counted, utc
from headway_errors import Conflict, Invalid, NotFound
from headway_postgres_kit import Connection, Database
from headway_service_kit.passes import Wakeup, seconds_until
from headway_tracing.log import get_logger
from msgspec import Struct

from headway_scheduler.fire.decide import Manifest, read_manifests
from headway_scheduler.fire.missed import skip_missed_during_pause
from headway_scheduler.fire.outbound_events import announce_switches
from headway_scheduler.fire.pauses import apply_pauses, window_of, windows_of
from headway_scheduler.fire.tick import reschedule_wake
from headway_scheduler.lookup import aware, reading, select_manifests
from headway_scheduler.operate.foresee import Foreseen, fire_count, foresee_all
from headway_scheduler.store import (
    DECLARE_LOCK,
    SOURCE,
    audit,
    lock_manifests,
    manifests,
    operator,
    pauses,
)

log = get_logger(__name__)

# Manifests that an answer lists.
_LISTED = 200
_SEE = "see 'headway pauses'"


class _Ending(Struct, frozen=True):
    """Pauses that a request ends; with `names` only for these manifests, which the pauses name."""

    rows: Sequence[Any]
    names: list[str] | None = None

    @property
    def ids(self) -> list[UUID]:
        """Return the ids of the pauses."""
        return [row["id"] for row in self.rows]


async def pause(connection: Connection, request: PauseRequest, *, now: datetime) -> PauseAnswer:
    """Pause manifests, also those that are declared later and match a group, labels or all."""
    if request.until is not None and aware(request.until) <= now:
        raise Invalid(f"{utc(request.until)} has passed: name a time to come, or none")
    if not request.dry_run:
        await connection.execute(manifests["lock_declaring"], DECLARE_LOCK)
    selected = await select_manifests(connection, request)
    chosen = (sorted(set(request.manifests)) or None, request.group, request.labels or None)
    extra: list[Window] = []
    made: UUID | None = None
    if request.dry_run:
        extra = [Window(pause=UUID(int=0), since=now, until=request.until)]
    else:
        made = await _add(connection, request, chosen, selected, now=now)
    rows = await connection.fetch(pauses["windows"], [row["id"] for row in selected])
    paused = [_paused(row, extra, request.reason) for row in rows]
    return PauseAnswer(
        text=_paused_text(request, paused, made),
        pause=made,
        count=len(paused),
        manifests=paused[:_LISTED],
        dry_run=request.dry_run,
    )


async def _add(
    connection: Connection,
    request: PauseRequest,
    chosen: tuple[list[str] | None, str | None, dict[str, str] | None],
    selected: Sequence[Any],
    *,
    now: datetime,
) -> UUID:
    """Add a pause and apply it; returns the id of an equal one if that is in force."""
    terms = (request.reason, request.actor or "unknown")
    same: UUID | None = await connection.fetchval(pauses["same"], *chosen, *terms, request.until)
    if same is not None:
        return same
    made = new_id()
    await connection.execute(pauses["add"], made, *chosen, *terms, now, request.until)
    locked = await lock_manifests(connection, [row["id"] for row in selected])
    fresh = [row["id"] for row in selected if not row["paused"]]
    await skip_missed_during_pause(connection, fresh, now=now)
    data = {
        "covers": covers_text(*chosen),
        "named": chosen[0] or [],
        "until": request.until,
        "reason": request.reason,
        "manifests": len(locked),
    }
    source = operator(request)
    await audit(connection, "headway.pause.created.v1", source, [(str(made), data)], now=now)
    await _apply(connection, locked, source=source, now=now)
    return made


async def _apply(
    connection: Connection, locked: Sequence[UUID], *, source: str, now: datetime
) -> None:
    """Apply the pauses in force to locked manifests, and announce which are held or let go."""
    switched = await apply_pauses(connection, locked, source=source, now=now)
    await reschedule_wake(connection, switched, now=now)
    await announce_switches(connection, switched, now=now)


def _paused(row: Any, extra: Sequence[Window], reason: str) -> PausedManifest:
    held = [*open_windows(windows_of(row)), *extra]
    return PausedManifest(
        manifest=row["external_id"],
        paused_at=min(window.since for window in held),
        paused_until=held_until(held),
        reason=reason,
        next_due_at=row["next_due_at"],
    )


def _paused_text(request: PauseRequest, paused: Sequence[PausedManifest], made: UUID | None) -> str:
    verb = "would be paused" if request.dry_run else "paused"
    until = "until resumed" if request.until is None else f"until {utc(request.until)}"
    text = f"{counted(len(paused), 'manifest')} {verb} {until}"
    longer = sum(manifest.paused_until != request.until for manifest in paused)
    if longer:
        text += f"; other pauses hold {longer} of them longer"
    return text if made is None else f"{text}. To end this pause: headway resume {made}"


async def foresee(database: Database, request: ResumeRequest) -> Foreseen:
    """Compute the fires that follow if pauses end now, before the transaction that ends them.

    That one locks the manifests, and must not stay idle.
    """
    async with reading(database) as (connection, now):
        rows, _ = await _held_only_by(connection, await _find_ending(connection, request))
        read = await read_manifests(connection, [row["id"] for row in rows], now=now)
    # In a thread, because the tick shares this process.
    resumed = await asyncio.to_thread(foresee_all, rows, read, now, {})
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
    """End the pauses that a request names, and list the fires that follow.

    The fires of manifests that changed since they were `foreseen` are computed again.
    """
    if not request.dry_run:
        await connection.execute(manifests["lock_declaring"], DECLARE_LOCK)
    ending = await _find_ending(connection, request)
    if not request.dry_run:
        held = await connection.fetch(pauses["held"], ending.ids, ending.names)
        locked = await lock_manifests(connection, [row["id"] for row in held])
    rows, still = await _held_only_by(connection, ending)
    read = await read_manifests(connection, [row["id"] for row in rows], now=now)
    resumed = foresee_all(rows, read, now, foreseen or {})
    if not request.dry_run:
        await _end(connection, ending, locked, source=operator(request), now=now)
    resumed.sort(key=lambda manifest: (not fire_count(manifest), manifest.manifest))
    fires = sum(map(fire_count, resumed))
    return ResumeAnswer(
        text=_resumed_text(request, ending, resumed, fires, still),
        pauses=ending.ids,
        count=len(resumed),
        still_paused=still,
        fires=fires,
        manifests=resumed[:_LISTED],
        dry_run=request.dry_run,
    )


def _resumed_text(
    request: ResumeRequest,
    ending: _Ending,
    resumed: Sequence[ResumedManifest],
    fires: int,
    still: int,
) -> str:
    if not ending.rows:
        return "no selected manifest is paused"
    verb = "would be resumed" if request.dry_run else "resumed"
    follows = f"{counted(fires, 'late fire')} will follow" if fires else "no late fires follow"
    text = f"{counted(len(resumed), 'manifest')} {verb}, {follows}"
    stays = "stays" if still == 1 else "stay"
    others = f"; {counted(still, 'manifest')} {stays} paused by other pauses: {_SEE}"
    return text + others if still else text


async def _find_ending(connection: Connection, request: ResumeRequest) -> _Ending:
    """Find the pauses that a request ends; refuses to choose between several.

    Manifests, a group, labels or all stand for the pause that was made for exactly them.
    """
    if request.pauses:
        limits = bool(request.manifests) and not request.dry_run
        if limits or request.group is not None or request.labels or request.all:
            raise Invalid("name pauses, or select manifests, not both")
        rows = await _pauses_in_force(connection, request.pauses)
        return _Ending(rows, request.manifests or None)
    selected = await select_manifests(connection, request)
    names = list(dict.fromkeys(request.manifests)) or None
    if names is None:
        found = await connection.fetch(pauses["made_for"], request.group, request.labels or None)
        _refuse_ambiguous(found, covers_text(None, request.group, request.labels))
        covered = {row["external_id"] for row in selected} if found else set[str]()
        subject = f"of {covers_text(None, request.group, request.labels)} is in force"
    else:
        found = await connection.fetch(pauses["naming"], names)
        for name in names:
            _refuse_ambiguous([row for row in found if name in row["manifests"]], repr(name))
        covered = {name for row in found for name in row["manifests"]}
        subject = "names it"
    others = [row["id"] for row in selected if row["external_id"] not in covered]
    await _refuse_others(connection, others, subject)
    return _Ending(found, names)


async def _pauses_in_force(connection: Connection, ids: Iterable[UUID]) -> list[Any]:
    """Return the rows of pauses; raises for one that has ended, or never was."""
    found: list[Any] = await connection.fetch(pauses["read"], list(ids))
    for unknown in sorted({*ids} - {row["id"] for row in found}):
        last = await connection.fetchrow(pauses["ended"], str(unknown))
        if last is None:
            raise NotFound(f"there is no pause {unknown}: {_SEE}")
        when = f"{utc(last['occurred_at'])} {by_whom(last['source'])}"
        raise Conflict(f"pause {unknown} has ended already, at {when}")
    return found


def _refuse_ambiguous(rows: Sequence[Any], subject: str) -> None:
    if len(rows) > 1:
        raise Conflict(
            f"{len(rows)} pauses were made for {subject}: name the one to end by its id\n"
            f"{_choices(rows)}"
        )


async def _refuse_others(connection: Connection, ids: Sequence[UUID], subject: str) -> None:
    """Refuse to resume manifests that only pauses of other selections hold."""
    rows = await connection.fetch(pauses["windows"], ids) if ids else []
    held = [
        (row["external_id"], window.pause)
        for row in rows
        for window in open_windows(windows_of(row))
    ]
    if held:
        named = await connection.fetch(pauses["read"], [pause for _, pause in held])
        raise Conflict(
            f"{held[0][0]!r} is paused, but no pause {subject}: name the one to end by its "
            f"id\n{_choices(named)}"
        )


def _choices(rows: Iterable[Any]) -> str:
    """List the commands that end pauses."""
    windows = [window_of(row, now=row["created_at"]) for row in rows]
    return "\n".join(f"  headway resume {w.pause}   {pause_text(w)}" for w in windows)


async def _held_only_by(connection: Connection, ending: _Ending) -> tuple[list[Any], int]:
    """Return the rows of manifests that resume, and how many other pauses hold on."""
    rows = await connection.fetch(pauses["held"], ending.ids, ending.names)
    ids = set(ending.ids)
    freed = [
        row for row in rows if all(window.pause in ids for window in open_windows(windows_of(row)))
    ]
    return freed, len(rows) - len(freed)


async def _end(
    connection: Connection, ending: _Ending, locked: Sequence[UUID], *, source: str, now: datetime
) -> None:
    """End pauses; the tick decides the times that came due in them."""
    over: list[Any] = []
    for row in ending.rows:
        left = [name for name in row["manifests"] or () if name not in (ending.names or ())]
        if ending.names is None or not left:
            over.append(row)
        else:
            await connection.execute(pauses["narrow"], row["id"], left)
            entry = (str(row["id"]), {"named": left, "before": {"named": row["manifests"]}})
            await audit(connection, "headway.pause.changed.v1", source, [entry], now=now)
    await connection.execute(pauses["remove"], [row["id"] for row in over])
    entries = [(str(row["id"]), {"covers": window_of(row, now=now).covers}) for row in over]
    await audit(connection, "headway.pause.ended.v1", source, entries, now=now)
    await _apply(connection, locked, source=source, now=now)


@dataclass(frozen=True)
class Windows:
    """The pass that ends pauses whose time is over."""

    database: Database
    relay: Wakeup
    tick: Wakeup

    async def run_once(self) -> float | None:
        """End the pauses whose time is over; returns how long to rest."""
        clock = self.database.clock
        async with self.database.acquire() as connection:
            now = await clock.now(connection)
            *over, later = await connection.fetch(pauses["over"], now)
        if not over:
            return seconds_until(later["until"], now)
        async with self.database.transaction() as connection:
            await connection.execute(manifests["lock_declaring"], DECLARE_LOCK)
            # Others may have been ended meanwhile.
            rows = await connection.fetch(pauses["read"], [row["id"] for row in over])
            ending = _Ending(rows)
            held = await connection.fetch(pauses["held"], ending.ids, None)
            locked = await lock_manifests(connection, [row["id"] for row in held])
            now = await clock.now(connection)
            await _end(connection, ending, locked, source=SOURCE, now=now)
        if rows:
            log.info("pauses ended", pauses=len(rows), manifests=len(locked))
        self.relay.call()
        self.tick.call()
        return 0.0
