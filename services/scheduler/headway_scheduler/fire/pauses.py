"""Let the pauses in force hold the manifests that they cover.

Every change of a pause, and every declaration of a manifest with its group and labels, holds the
declaration lock and applies the pauses before it commits. So the row of a manifest always has the
pauses that hold it, and the tick reads nothing else.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from headway_decisions.firing.manifest_state import Window
from headway_decisions.firing.pauses import covers_text, open_windows, rewindow
from headway_postgres_kit import Connection

from headway_scheduler.store import audit, pauses

Windows = tuple[Window, ...]


async def apply_pauses(
    connection: Connection, ids: Iterable[UUID], *, source: str, now: datetime
) -> list[UUID]:
    """Open and end windows of locked manifests; returns those that a pause holds or lets go."""
    rows = await connection.fetch(pauses["coverage"], list(ids), now)
    needed = {pause for row in rows for pause in row["covering"]}
    found = await connection.fetch(pauses["read"], list(needed)) if needed else []
    windows = {row["id"]: window_of(row, now=now) for row in found}
    changed: list[dict[str, Any]] = []
    switched: list[UUID] = []
    paused, resumed = list[tuple[str, Any]](), list[tuple[str, Any]]()
    for row in rows:
        known = windows_of(row)
        covering = [windows[pause] for pause in row["covering"]]
        fresh = rewindow(known, covering, next_due_at=row["next_due_at"], now=now)
        if fresh == known:
            continue
        changed.append({"id": row["id"], "pauses": fresh})
        before, after = open_windows(known), open_windows(fresh)
        paused += [(row["external_id"], _entry(window)) for window in after if window not in before]
        if bool(before) != bool(after):
            switched.append(row["id"])
        if before and not after:
            resumed.append((row["external_id"], {"pause": before[-1].pause}))
    if changed:
        await connection.execute(pauses["store_windows"], changed)
        await audit(connection, "headway.manifest.paused.v1", source, paused, now=now)
        await audit(connection, "headway.manifest.resumed.v1", source, resumed, now=now)
    return switched


def window_of(row: Any, *, now: datetime) -> Window:
    """Return the window that a pause opens now."""
    return Window(
        pause=row["id"],
        since=now,
        until=row["until"],
        reason=row["reason"],
        by=row["created_by"],
        covers=covers_text(row["manifests"], row["group_name"], row["labels"]),
    )


def windows_of(row: Any) -> Windows:
    """Return the windows of a manifest's row."""
    return msgspec.convert(row["pauses"], Windows)


def _entry(window: Window) -> dict[str, Any]:
    """Return the data of an audit entry about a manifest that a pause holds."""
    return {"pause": window.pause, "until": window.until, "reason": window.reason}
