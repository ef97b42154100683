"""Close work that has ended: delete it, and write its outcome to its decision and its manifest."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from headway_contract.notifications import ManifestBlocked
from headway_contract.settled import WorkSettled
from headway_decisions.firing import due
from headway_decisions.firing.manifest_state import ManifestView, Verdict
from headway_postgres_kit import Connection, note
from msgspec import Struct, structs

from headway_scheduler.fire.decide import judge, read_rows
from headway_scheduler.notifications.recorder import Notification
from headway_scheduler.store import columns, occurrences, works


class Closed(Struct, frozen=True, kw_only=True):
    """Work that has ended.

    `came_due`: due times of its manifest may have passed while it was outstanding. The defaults are
    for work whose row is gone.
    """

    id: UUID
    manifest: UUID
    cause: str
    end: WorkSettled
    slot: int = 0
    children: list[UUID] = []
    came_due: bool = True
    one_shot: bool = True
    is_dependent: bool = True


class _Next(Struct, frozen=True, kw_only=True):
    """How a manifest moves on, which is written with the outcome of its work."""

    next_due_at: datetime | None = None
    wake_at: datetime | None = None
    is_over: bool = False
    moves_on: bool = True


_LATER = _Next(moves_on=False)


async def judge_completed(
    connection: Connection, owned: Sequence[Closed], now: datetime
) -> dict[UUID, _Next]:
    """Decide how manifests move on of which one work completed, and nothing else changes.

    The next times are then written with the outcome. Other manifests are read again after it.
    """
    ended = Counter(work.manifest for work in owned)
    completed = {
        work.manifest: work
        for work in owned
        if ended[work.manifest] == 1 and work.end.outcome == "completed" and not work.is_dependent
    }

    def rule(view: ManifestView, *, now: datetime) -> Verdict:
        work, slots = completed[view.id], list(view.slots)
        slots.remove(work.slot)
        free = structs.replace(view, slots=tuple(slots), settled_at=work.end.settled_at)
        return due.reschedule_wake(free, now=now)

    rows = await read_rows(connection, completed) if completed else []
    # A manifest that cannot be judged is postponed with the others.
    return {
        manifest.view.id: _Next(
            next_due_at=verdict.next_due_at,
            wake_at=verdict.wake_at,
            is_over=completed[manifest.view.id].one_shot
            and verdict.next_due_at is None
            and len(manifest.view.slots) == 1
            and not manifest.owed,
        )
        for manifest, verdict in await judge(rows, rule, {}, now)
    }


async def close(
    connection: Connection,
    closed: Sequence[Closed],
    owned: Sequence[Closed],
    moved: Mapping[UUID, _Next],
    now: datetime,
) -> None:
    """Delete work that has ended, and write its outcome to its decisions and manifests."""
    if not closed:
        return
    letters = {work.end.dead_letter: work.manifest for work in owned if work.end.dead_letter}
    resolved: set[UUID] = set()
    if letters:
        rows = await connection.fetch(
            occurrences["note_letters"], list(letters), list(letters.values())
        )
        resolved = {row["dead_letter"] for row in rows}
    decisions = columns(owned, "manifest", "cause", "end.outcome", "end.round")
    # One row for each manifest and statement: several of its works may end in one batch.
    first, *others = _turns(owned) or [[]]
    ids = [work.id for work in closed]
    blocked = await connection.fetch(
        works["close"], ids, *decisions, *_manifest_columns(first, resolved, moved), now
    )
    for turn in others:
        blocked += await connection.fetch(
            works["close"], [], [], [], [], [], *_manifest_columns(turn, resolved, moved), now
        )
    for row in blocked:
        fact = f"blocked {row['dead_letter']}"
        data = ManifestBlocked(**dict(row))
        note(Notification(identity=fact, subject=data.manifest, data=data))


def _manifest_columns(
    turn: Sequence[Closed], resolved: set[UUID], moved: Mapping[UUID, _Next]
) -> list[list[Any]]:
    letters = [work.end.dead_letter for work in turn]
    open_letters = [None if letter in resolved else letter for letter in letters]
    moves = [moved.get(work.manifest, _LATER) for work in turn]
    return [
        *columns(turn, "manifest", "end.outcome", "end.settled_at"),
        open_letters,
        *columns(moves, "moves_on", "next_due_at", "wake_at", "is_over"),
    ]


def _turns(owned: Sequence[Closed]) -> list[list[Closed]]:
    """Split work so that each turn has a manifest only once, the earlier outcome first."""
    turns: dict[int, list[Closed]] = defaultdict(list)
    earlier: Counter[UUID] = Counter()
    for work in sorted(owned, key=lambda work: work.end.settled_at):
        turns[earlier[work.manifest]].append(work)
        earlier[work.manifest] += 1
    return list(turns.values())
